// What a page does for people with a keyboard and for people with paper, whether it has charts or not.
(() => {
  "use strict";
  // Escape folds what it is pressed in, and the focus is where it was unfolded.
  addEventListener("keydown", (event) => {
    const open = event.key === "Escape" && document.activeElement.closest("details[open]");
    if (!open) return;
    open.open = false;
    open.querySelector("summary").focus();
  });

  // Paper cannot be unfolded; lists of digests stand in report.json for whoever needs them.
  const unfolded = [];
  const ownPaper = document.getElementById("paper"); // a report prints a layout of its own (paper.html.j2)
  addEventListener("beforeprint", () => {
    if (ownPaper) return;
    for (const part of document.querySelectorAll("details:not([open]):not(.digests)")) {
      part.open = true;
      unfolded.push(part);
    }
  });
  addEventListener("afterprint", () => {
    for (const part of unfolded.splice(0)) part.open = false;
  });
})();
