"use strict";
// Draws the charts of charts.py with Observable Plot, each as its case is opened and again where the page gets another width.
const signed = value => (value > 0 ? "+" : "") + value;
const limit = { stroke: "var(--bad)", strokeDasharray: "5 4" }, agreed = { stroke: "var(--base)", strokeWidth: 2 };
// A domain with a margin, also of values that are all alike.
const around = values => {
  const low = Math.min(...values), high = Math.max(...values), margin = (high - low) / 10 || Math.abs(high) / 20 || 1;
  return [low - margin, high + margin];
};
const second = ([, value]) => value;
const symbols = { base: "circle", head: "square" };
const dots = (points, side, more) => Plot.dot(points, {
  x: "0", y: "1", symbol: symbols[side], r: 2.5, stroke: `var(--${side})`, fill: `var(--${side})`, fillOpacity: 0.4, ...more,
});

// The plots of each kind of data, one below another.
const kinds = {
  times({ unit, base, head, edges, baseline }) {
    const all = [["base", base], ["head", head]].flatMap(([side, points]) => points.map(([, time]) => ({ side, time })));
    const domain = around([...base, ...head].map(second).concat(baseline));
    const bins = { x: "time", fy: "side", fill: ({ side }) => `var(--${side})`, thresholds: 30 };
    return [
      {
        x: { label: "round, process by process" }, y: { label: unit, grid: true, domain },
        marks: [
          Plot.ruleX(edges, { x: edge => edge - 0.5, stroke: "var(--line)" }), Plot.ruleY(baseline, agreed),
          dots(base, "base"), dots(head, "head"),
        ],
      },
      {
        ariaLabel: "Distribution of the times", height: base.length ? 210 : 140, fy: { label: null },
        x: { label: unit, domain }, y: { label: "rounds", ticks: 3, tickFormat: "d", labelAnchor: "top" },
        marks: [Plot.rectY(all, Plot.binX({ y: "count" }, bins)), Plot.ruleX(baseline, agreed), Plot.ruleY([0])],
      },
    ];
  },
  differences({ pairs, limits, ...interval }) {
    const row = pairs.length + 1, below = () => row, all = pairs.map((_, i) => i + 1);
    const ticks = [...(all.length > 10 ? all.filter(i => i === 1 || i % 5 === 0) : all), row];
    return [{
      x: { label: "change of the time in percent", tickFormat: signed, nice: true, grid: true },
      y: { label: pairs.length ? "pair" : null, domain: [row + 1, 0], ticks, tickFormat: i => (i === row ? "interval" : i) },
      marks: [
        Plot.ruleX([0]), Plot.ruleX(limits, limit), dots(pairs.map((change, i) => [change, i + 1]), "head"),
        Plot.link([interval], { x1: "low", x2: "high", y1: below, y2: below, stroke: "currentColor", strokeWidth: 3 }),
        Plot.dot([interval], { x: "point", y: below, r: 5, fill: "currentColor" }),
      ],
    }];
  },
  roofline({ ceiling, base, head }) {
    const log = { type: "log", tickFormat: "~s", ticks: 4, nice: true };
    return [{
      x: { ...log, label: "FLOP/B" }, y: { ...log, label: "FLOP/s", grid: true },
      marks: [Plot.line(ceiling, limit), dots(base, "base", { r: 7 }), dots(head, "head", { r: 5 })],
    }];
  },
  bandwidth({ unit, ceiling, base, head }) {
    return [{
      height: 160, x: { label: null, domain: base.length ? ["base", "head"] : ["head"] }, y: { label: unit, grid: true, zero: true, ticks: 4 },
      marks: [Plot.ruleY([ceiling], limit), dots(base, "base", { r: 5 }), dots(head, "head", { r: 5 })],
    }];
  },
  history({ unit, points, changes }) {
    const place = { x: "0", y: "1" }, span = { x: "0", y1: "2", y2: "3", stroke: "var(--head)", strokeOpacity: 0.4 };
    return [{
      x: { label: "commit or run", tickFormat: "d", ticks: 0 }, y: { label: unit, grid: true, domain: around(points.flatMap(point => point.slice(1, 4))) },
      marks: [
        Plot.ruleX(changes, limit), Plot.ruleX(points, span), Plot.line(points, { ...place, stroke: "var(--head)" }),
        dots(points, "head", { r: 3 }), Plot.tip(points, Plot.pointerX({ ...place, title: point => `${point[4]}\n${point[1]} ${unit}` })),
      ],
    }];
  },
  conditions({ unit, base, head }) {
    return [{
      height: 160, x: { label: "process", tickFormat: "d", ticks: Math.min(8, head.length) },
      y: { label: unit, grid: true, ticks: 4, domain: around([...base, ...head].map(second)) },
      marks: [dots(base, "base", { r: 4 }), dots(head, "head")],
    }];
  },
};

const charts = JSON.parse(document.getElementById("charts").textContent);
function draw(figure) {
  const width = figure.clientWidth;
  if (figure.closest("details:not([open])") || figure.dataset.width === String(width)) return;
  figure.dataset.width = width;
  for (const old of figure.querySelectorAll("svg")) old.remove();
  const { kind, data } = charts[figure.dataset.chart];
  for (const options of kinds[kind](data)) {
    const svg = Plot.plot({ ariaLabel: figure.firstElementChild.textContent, width, height: 230, marginLeft: 64, marginBottom: 40, ...options });
    svg.setAttribute("role", "img");
    for (const part of svg.querySelectorAll("[aria-label]")) part.removeAttribute("aria-label"); // they are no elements of their own
    figure.querySelector("figcaption").before(svg);
  }
}
const drawAll = within => within.querySelectorAll("figure[data-chart]").forEach(draw);
document.addEventListener("toggle", event => event.target.open && drawAll(event.target), true);
addEventListener("resize", () => drawAll(document));
drawAll(document);
