import { useEffect, useState } from "preact/hooks";

const query = matchMedia("(prefers-color-scheme: dark)");

/** Whether the user prefers dark colours. */
export function useDark(): boolean {
  const [dark, setDark] = useState(query.matches);
  useEffect(() => {
    const changed = () => setDark(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return dark;
}
