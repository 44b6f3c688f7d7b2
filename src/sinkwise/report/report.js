"use strict";
(() => {
  const config = JSON.parse(document.getElementById("plot-config").textContent);
  // without a pointer that hovers, the controls would stay in view and cover the figures
  if (!window.matchMedia("(hover: hover)").matches) config.displayModeBar = false;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const printing = { now: false };
  const figures = [...document.querySelectorAll("script[data-figure]")].map((source) => ({
    place: document.getElementById(source.dataset.figure),
    content: JSON.parse(source.textContent),
  }));
  // the dark blue of the palette is hard to see on a dark ground
  const lighter = (content) => JSON.parse(JSON.stringify(content).replaceAll("#0072B2", "#3f9fe0"));

  function themed(layout) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const light = printing.now || !dark.matches;
    const ink = light ? "#1c2127" : colour("--ink");
    const grid = light ? "#e3e6ea" : colour("--grid");
    const copy = structuredClone(layout);
    const base = copy.template.layout;
    base.font.color = ink;
    base.paper_bgcolor = base.plot_bgcolor = "rgba(0,0,0,0)";
    for (const axis of [base.xaxis, base.yaxis]) {
      axis.gridcolor = axis.zerolinecolor = grid;
    }
    return copy;
  }

  function drawAll() {
    for (const { place, content } of figures) {
      const shown = dark.matches && !printing.now ? lighter(content) : content;
      Plotly.react(place, shown.data, themed(shown.layout), config);
    }
  }

  // zooming into one distance heat map zooms into all: they share one order of heads
  function linkZoom() {
    const linked = [...document.querySelectorAll(".linked .plot")];
    let busy = false;
    for (const place of linked) {
      place.on("plotly_relayout", (change) => {
        const axes = Object.entries(change).filter(([key]) => /^[xy]axis\./.test(key));
        if (busy || axes.length === 0) return;
        busy = true;
        const others = linked.filter((other) => other !== place);
        Promise.all(others.map((other) => Plotly.relayout(other, Object.fromEntries(axes))))
          .finally(() => { busy = false; });
      });
    }
  }

  // on paper a figure is as wide as its column: the page's own width says nothing of it
  function resizeAll(whole) {
    for (const { place } of figures) {
      const width = place.closest(".columns-1") ? whole : whole / 2 - 12;
      Plotly.relayout(place, whole ? { width, autosize: false } : { width: null, autosize: true });
    }
  }

  const closed = [];
  window.addEventListener("beforeprint", () => {
    printing.now = true;
    for (const part of document.querySelectorAll("details:not([open])")) {
      part.open = true;
      closed.push(part);
    }
    drawAll();
    resizeAll(660);
  });
  window.addEventListener("afterprint", () => {
    printing.now = false;
    for (const part of closed.splice(0)) part.open = false;
    drawAll();
    resizeAll(null);
  });
  dark.addEventListener("change", drawAll);

  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.addEventListener("click", async () => {
      const source = document.getElementById(button.dataset.copy);
      const range = document.createRange();
      range.selectNodeContents(source);
      window.getSelection().removeAllRanges();
      window.getSelection().addRange(range);
      let copied = false;
      try {
        await navigator.clipboard.writeText(source.innerText);
        copied = true;
      } catch {
        copied = document.execCommand("copy");
      }
      button.textContent = copied ? "Copied" : "Selected: press Ctrl+C";
    });
  }

  drawAll();
  linkZoom();
  // a figure in a closed part has no width until it is opened
  for (const part of document.querySelectorAll("details")) {
    part.addEventListener("toggle", () => {
      if (part.open) part.querySelectorAll(".plot").forEach((p) => Plotly.Plots.resize(p));
    });
  }
})();
