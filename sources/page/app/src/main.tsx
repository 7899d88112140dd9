import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { MapView, type Settings } from "./MapView";
import { OpsView } from "./OpsView";
import "./style.css";

const operator = document.body.dataset.view === "operator";
const stored = "trafficd-key";

function App() {
  const [settings, setSettings] = useState<Settings>();
  const [error, setError] = useState("");
  const [view, setView] = useState(operator && location.hash !== "#map" ? "operations" : "map");
  const [key, setKey] = useState(sessionStorage.getItem(stored) ?? "");
  const [refused, setRefused] = useState("");
  const dark = useDark();
  useEffect(() => {
    fetch("settings.json", { cache: "no-cache" })
      .then((r) => r.json())
      .then(setSettings, (e: Error) => setError(`Cannot load the settings: ${e.message}`));
  }, []);
  useEffect(() => {
    const changed = () => setView(location.hash === "#map" ? "map" : "operations");
    if (operator) addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return (
    <>
      <header>
        <h1>trafficd</h1>
        {operator && (
          <nav aria-label="Views">
            <a href="#operations" aria-current={view === "operations" ? "page" : undefined}>
              Operations
            </a>
            <a href="#map" aria-current={view === "map" ? "page" : undefined}>
              Map
            </a>
          </nav>
        )}
        {!operator && key && (
          <button
            type="button"
            onClick={() => {
              sessionStorage.removeItem(stored);
              setKey("");
            }}
          >
            Forget the key
          </button>
        )}
      </header>
      {error && <p role="alert">{error}</p>}
      {view === "operations" && <OpsView />}
      {view === "map" && settings && (operator || key) && (
        <main>
          <MapView
            base={operator ? "./" : "../"}
            apiKey={key}
            settings={settings}
            dark={dark}
            onKeyRefused={(why) => {
              if (operator) return;
              sessionStorage.removeItem(stored);
              setRefused(why);
              setKey("");
            }}
          />
        </main>
      )}
      {view === "map" && !operator && !key && <KeyForm refused={refused} onKey={setKey} />}
    </>
  );
}

/** Asks for the API key. It is kept in memory, or for the session if the user says so; never in the address. */
function KeyForm(props: { refused: string; onKey: (key: string) => void }) {
  return (
    <main class="key">
      <form
        class="card"
        onSubmit={(e) => {
          e.preventDefault();
          const data = new FormData(e.currentTarget);
          const key = String(data.get("key")).trim();
          if (!key) return;
          if (data.get("keep")) sessionStorage.setItem(stored, key);
          props.onKey(key);
        }}
      >
        <h2>API key</h2>
        <p>The forecast layer needs an API key with the right “forecast”.</p>
        {props.refused && (
          <p class="bad" role="alert">
            {props.refused}
          </p>
        )}
        <input type="password" name="key" aria-label="API key" autocomplete="off" required />
        <label>
          <input type="checkbox" name="keep" /> keep it until this tab is closed
        </label>
        <button type="submit">Show the map</button>
      </form>
    </main>
  );
}

function useDark(): boolean {
  const query = matchMedia("(prefers-color-scheme: dark)");
  const [dark, setDark] = useState(query.matches);
  useEffect(() => {
    const changed = () => setDark(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, [query]);
  return dark;
}

render(<App />, document.getElementById("app")!);
