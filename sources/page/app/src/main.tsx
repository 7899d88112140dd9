import { type ComponentType, render } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Settings } from "./settings";
import "./style.css";

const operator = document.body.dataset.view === "operator";
const stored = "trafficd-key";

// The views are loaded when they are shown: the library for the map is most of the page.
const views = { operations: () => import("./OpsView"), map: () => import("./MapView") };

type View = keyof typeof views;

const viewOfAddress = (): View => (operator && location.hash.split("?")[0] !== "#map" ? "operations" : "map");

function App() {
  const [settings, setSettings] = useState<Settings>();
  const [error, setError] = useState("");
  const [view, setView] = useState(viewOfAddress);
  const [loaded, setLoaded] = useState<{ [V in View]?: ComponentType<never> }>({});
  const [key, setKey] = useState(sessionStorage.getItem(stored) ?? "");
  const [refused, setRefused] = useState("");
  useEffect(() => {
    fetch("settings.json", { cache: "no-cache" })
      .then((r) => r.json())
      .then(setSettings, (e: Error) => setError(`Cannot load the settings: ${e.message}`));
  }, []);
  useEffect(() => {
    const changed = () => setView(viewOfAddress);
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  useEffect(() => {
    document.title = `${location.host}: ${view === "map" ? "forecast map" : "operations"}, trafficd`;
    views[view]().then(
      (m) => setLoaded((others) => ({ ...others, [view]: m.default })),
      (e: Error) => setError(`Cannot load the page: ${e.message}. Reload it.`),
    );
  }, [view]);
  const Operations = loaded.operations as typeof import("./OpsView").default | undefined;
  const MapView = loaded.map as typeof import("./MapView").default | undefined;
  const tab = (name: View, title: string) => (
    <a href={`#${name}`} aria-current={view === name ? "page" : undefined}>
      {title}
    </a>
  );
  return (
    <>
      <header>
        <h1>trafficd</h1>
        {operator && (
          <nav aria-label="Views">
            {tab("operations", "Operations")}
            {tab("map", "Map")}
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
      {view === "operations" && Operations && settings && <Operations settings={settings} />}
      {view === "map" && MapView && settings && (operator || key) && (
        <main>
          <MapView
            base={operator ? "./" : "../"}
            operator={operator}
            apiKey={key}
            settings={settings}
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

/** Asks for the API key. It is kept in memory, or for the session if the user chooses that, but never in the address. */
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
        <p>The map shows the street forecasts. It needs an API key with the “forecast” right.</p>
        {props.refused && (
          <p class="bad" role="alert">
            {props.refused}
          </p>
        )}
        <input type="password" name="key" aria-label="API key" autocomplete="off" required />
        <label>
          <input type="checkbox" name="keep" /> Keep it until this tab is closed
        </label>
        <button type="submit">Show the map</button>
      </form>
    </main>
  );
}

render(<App />, document.getElementById("app")!);
