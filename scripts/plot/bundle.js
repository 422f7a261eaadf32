export { binX, dot, line, link, plot, pointerX, rectY, ruleX, ruleY, tip } from "@observablehq/plot";
