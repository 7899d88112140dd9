export interface Row {
  key: string;
  cells: string[];
  bad?: boolean;
}

/** A table that scrolls. `role` is the role of the element around it. */
export function Rows(props: { label: string; role?: "log"; head: string[]; rows: Row[]; none: string }) {
  const { label, role, head, rows, none } = props;
  if (rows.length === 0) return <p class="note">{none}</p>;
  return (
    <section class="scroll" tabIndex={0} role={role} aria-label={label}>
      <table>
        <thead>
          <tr>
            {head.map((h) => (
              <th key={h} scope="col">
                {h}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((r) => (
            <tr key={r.key} class={r.bad ? "bad" : ""}>
              {r.cells.map((c, i) => (
                <td key={head[i]}>{c}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
