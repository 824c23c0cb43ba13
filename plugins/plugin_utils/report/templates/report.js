// Draws the figures that stand in the page as JSON, in the colours of the reader's theme and, for print, of paper.
(() => {
  "use strict";
  const scripts = Array.from(document.querySelectorAll("script.figure"));
  const root = document.documentElement;
  const drawn = new Set();

  // Whoever scrolls is not held up: what takes its time waits until the page rests.
  let moved = -Infinity;
  addEventListener("scroll", () => { moved = performance.now(); }, { passive: true });
  const rest = async () => {
    for (let wait = 0; wait >= 0; wait = moved + 200 - performance.now()) await new Promise((done) => setTimeout(done, wait));
  };

  // The library stands in the page as base64 of zlib's format. Where it cannot be unpacked the tables are there still.
  const unpack = async () => {
    const text = atob(document.getElementById("library").textContent);
    const packed = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i += 1) packed[i] = text.charCodeAt(i);
    const script = document.createElement("script");
    script.textContent = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
    await rest();
    document.head.append(script);
  };

  // A few parts of the library at a time: whoever begins to scroll just then is not held up for long.
  const load = async () => {
    await unpack();
    let until = 0, last;
    for (const part of plotlyParts) {
      if (performance.now() > until) {
        await rest();
        until = performance.now() + 20;
      }
      last = part();
    }
    await rest();
    // What every chart needs takes its time once: a chart of nothing has that before the first of ours does.
    last.newPlot(document.createElement("div"), [], {});
    window.Plotly = last;
  };

  const draw = (script, width) => {
    if (!window.Plotly) return; // before there is anything to draw with
    const style = getComputedStyle(root);
    const colour = (name) => style.getPropertyValue("--" + name).trim();
    const { data, layout } = JSON.parse(script.textContent);
    for (const trace of data) {
      if (!trace.meta) continue;
      const of = colour(trace.meta);
      if (trace.type === "bar") trace.marker = { color: of };
      else if (trace.mode === "lines") trace.line.color = of;
      else { trace.marker.color = of; if (trace.marker.symbol === "x-thin") trace.marker.line.color = of; }
    }
    const axis = { color: colour("soft"), gridcolor: colour("line"), linecolor: colour("line"), fixedrange: true };
    for (const name of Object.keys(layout)) if (/^[xy]axis/.test(name)) Object.assign(layout[name], axis);
    for (const shape of layout.shapes || []) shape.line.color = colour("floor");
    const plot = document.getElementById(script.dataset.plot);
    const room = width || plot.clientWidth;
    if (!room) return; // in a part that is still closed
    Object.assign(layout, {
      width: room, height: layout.height || (room < 500 ? 300 : 280), autosize: false, hovermode: "closest",
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("soft") },
      margin: { l: 12, r: 12, t: 34, b: 12, autoexpand: true },
      showlegend: layout.showlegend !== false, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
      hoverlabel: { bgcolor: colour("paper"), bordercolor: colour("soft"), font: { color: colour("ink") } },
    });
    layout.xaxis.automargin = true;
    Plotly.react(plot, data, layout, { displayModeBar: false, responsive: false });
    drawn.add(script);
  };

  // One after the other, so that a page with many charts can be read and scrolled at once.
  const queue = async (waiting) => {
    for (const script of waiting) {
      await rest();
      if (!drawn.has(script)) draw(script);
    }
    root.dataset.drawn = scripts.length;
  };
  const again = () => { drawn.clear(); delete root.dataset.drawn; queue(scripts); };
  const paper = (on) => {
    root.classList.toggle("printing", on);
    // 180 mm: A4 between its margins.
    if (on) for (const script of scripts) draw(script, 680);
    else again();
  };

  // In a moment, so that the page is shown first.
  setTimeout(() => rest().then(load).then(() => queue(scripts)), 20);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  document.addEventListener("toggle", (event) => {
    for (const script of event.target.querySelectorAll("script.figure")) if (!drawn.has(script)) draw(script);
  }, true);
  // A report prints a layout of its own, without charts (paper.html.j2).
  if (!document.getElementById("paper")) {
    addEventListener("beforeprint", () => paper(true));
    addEventListener("afterprint", () => paper(false));
  }
  let width = innerWidth, pause;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(pause);
    pause = setTimeout(again, 150);
  });
})();
