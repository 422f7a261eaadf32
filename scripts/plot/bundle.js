export { binX, dot, line, link, plot, rectY, ruleX, ruleY, text } from "@observablehq/plot";
