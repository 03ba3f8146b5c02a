"use strict";
// Lays an interactive view over each still drawing. Where one fails, its still drawing simply stays.
(() => {
  const specs = JSON.parse(document.getElementById("figure-specs").textContent);
  const options = { mode: "vega-lite", renderer: "svg", actions: false, ast: true, tooltip: { disableDefaultStyle: true } };
  for (const place of document.querySelectorAll("[data-figure]")) {
    const live = document.createElement("div");
    live.className = "live";
    place.append(live);
    window.vegaEmbed(live, specs[place.dataset.figure], options).then(
      () => place.classList.add("is-live"),
      (reason) => {
        live.remove();
        console.warn("figure stays still:", reason);
      },
    );
  }
  if (!navigator.clipboard) return;
  for (const block of document.querySelectorAll(".code")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", () => {
      navigator.clipboard.writeText(block.querySelector("code").textContent).then(
        () => { button.textContent = "Copied"; },
        () => { button.textContent = "Not allowed here"; },
      );
    });
    block.querySelector(".code-label").append(" ", button);
  }
})();
