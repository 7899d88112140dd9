export interface Row {
  key: string;
  cells: string[];
  bad?: boolean;
}

/** A table that scrolls. `role` is the ARIA role of its container, and `numbers` is the number of numeric columns, which follow the first column. */
export function Rows(props: {
  label: string;
  role?: "log";
  head: string[];
  numbers?: number;
  rows: Row[];
  none: string;
}) {
  const { label, role, head, numbers = 0, rows, none } = props;
  const kind = (column: number) => (column >= 1 && column <= numbers ? "number" : undefined);
  if (rows.length === 0) return <p class="note">{none}</p>;
  return (
    <section class="scroll" tabIndex={0} role={role} aria-label={label}>
      <table>
        <thead>
          <tr>
            {head.map((h, i) => (
              <th key={h} scope="col" class={kind(i)}>
                {h}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((r) => (
            <tr key={r.key} class={r.bad ? "bad" : ""}>
              {r.cells.map((c, i) => (
                <td key={head[i]} class={kind(i)}>
                  {c}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
