// What the theme makes of code blocks: a landmark without a name for each button, and code and tables that are scrolled by the mouse alone.
new MutationObserver(() => {
  for (const each of document.querySelectorAll("nav.md-code__nav:not([role])")) each.setAttribute("role", "presentation");
  for (const each of document.querySelectorAll("pre > code:not([tabindex]), .md-typeset__scrollwrap:not([tabindex])")) each.tabIndex = 0;
}).observe(document, { childList: true, subtree: true, attributeFilter: ["tabindex"] });
