import { defineConfig } from "vite";

// Two pages share their assets: index.html for operators, map.html for clients. Assets have hashed names, so they may
// be cached for ever; nothing is inlined, because the Content-Security-Policy forbids it.
export default defineConfig({
  base: "./",
  build: {
    outDir: "../dist",
    emptyOutDir: true,
    target: "es2023",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 2000,
    rolldownOptions: {
      input: ["index.html", "map.html"],
      output: { codeSplitting: { groups: [{ name: "maplibre", test: /node_modules[\\/]maplibre-gl/ }] } },
    },
  },
  worker: { format: "es" },
});
