// Puts the page together, and says when it can be used: ``data-ready`` on the root is the time since it was opened.

function currentTheme() {
  return document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  // Where a page has no storage (some browsers give files none), it follows the system the next time.
  try { localStorage.setItem("tpusim-theme", name); } catch { /* see above */ }
}

function listenToTheme(redraw) {
  const button = el("theme");
  const show = () => { button.textContent = currentTheme() === "dark" ? "Light" : "Dark"; redraw(); };
  try {
    const kept = localStorage.getItem("tpusim-theme");
    if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
  } catch { /* as in setTheme */ }
  button.addEventListener("click", () => { setTheme(currentTheme() === "dark" ? "light" : "dark"); show(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
}

async function start() {
  const store = new Store(await unpack(el("data").textContent));
  el("data").remove();
  showSummary(store);
  showPod(store);
  showCompared(store);
  const table = new OpTable(store);
  const timeline = new Timeline(store);
  const memory = new Memory(store);
  const roofline = new Roofline(store);
  const charts = [timeline, memory, roofline];
  store.onSelect((op) => showDetails(store, op));
  timeline.onLegend = (name) => { table.filterCategory(name); el("ops").scrollIntoView(); };
  roofline.onEnter = () => { timeline.showOp(store.selected); el("timeline").scrollIntoView(); };
  listenToTheme(() => charts.forEach((chart) => chart.redraw()));
  requestAnimationFrame(() => setTimeout(() => { document.documentElement.dataset.ready = String(Math.round(performance.now())); }));
}

start().catch((error) => {
  el("failed").textContent = `This report cannot be shown: ${error.message}`;
  el("failed").hidden = false;
  console.error(error);
});
