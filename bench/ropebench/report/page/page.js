"use strict";
(() => {
  const about = JSON.parse(document.getElementById("about").textContent);
  const tip = document.getElementById("tip");
  const form = document.getElementById("filters");
  const all = (selector, where = document) => [...where.querySelectorAll(selector)];
  all("table.sortable").forEach((table) => new Tablesort(table));

  // Filters: rows of the table of cells, whole sections, and columns by length.
  function filter() {
    const value = (name) => form.querySelector("select[name=" + name + "]").value; // form.elements.length is a count
    const want = Object.fromEntries(["model", "task", "method", "length"].map((name) => [name, value(name)]));
    const keeps = (node, names) => names.every((name) => !want[name] || node.dataset[name] === want[name]);
    const rows = all("#cells tbody tr");
    rows.forEach((row) => { row.hidden = !keeps(row, ["model", "task", "method", "length"]); });
    all("section[data-model]").forEach((part) => {
      part.hidden = !keeps(part, part.dataset.task === undefined ? ["model"] : ["model", "task"]);
    });
    all("section th[data-length], section td[data-length]").forEach((cell) => { cell.hidden = !keeps(cell, ["length"]); });
    all("section tr[data-method]").forEach((row) => { row.hidden = !keeps(row, ["method"]); });
    const shown = rows.filter((row) => !row.hidden).length;
    document.getElementById("count").textContent = shown + " of " + rows.length + " cells shown";
  }
  form.addEventListener("change", filter);
  form.addEventListener("reset", () => setTimeout(filter));
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();

  // Details of a number: on hover and focus, kept by a click or tap, gone with Escape.
  let kept = null;
  let shownFor = null;
  function show(button) {
    const facts = about[button.dataset.cell];
    if (!facts) return;
    const list = document.createElement("dl");
    for (const [name, value] of facts) {
      list.append(Object.assign(document.createElement("dt"), { textContent: name }),
        Object.assign(document.createElement("dd"), { textContent: value }));
    }
    if (shownFor) shownFor.removeAttribute("aria-describedby");
    shownFor = button;
    button.setAttribute("aria-describedby", "tip");
    tip.replaceChildren(list);
    tip.hidden = false;
    const at = button.getBoundingClientRect();
    const below = at.bottom + 6 + tip.offsetHeight <= innerHeight;
    tip.style.top = Math.max(4, below ? at.bottom + 6 : at.top - 6 - tip.offsetHeight) + "px";
    tip.style.left = Math.max(4, Math.min(at.left, innerWidth - tip.offsetWidth - 8)) + "px";
  }
  function hide() {
    tip.hidden = true;
    kept = null;
    if (shownFor) shownFor.removeAttribute("aria-describedby");
    shownFor = null;
  }
  const of = (event) => event.target.closest && event.target.closest("button.v");
  document.addEventListener("mouseover", (event) => { if (of(event) && !kept) show(of(event)); });
  document.addEventListener("mouseout", (event) => { if (of(event) && !kept) hide(); });
  document.addEventListener("focusin", (event) => { if (of(event) && kept !== of(event)) { kept = null; show(of(event)); } });
  document.addEventListener("focusout", (event) => { if (of(event) && !kept) hide(); });
  document.addEventListener("click", (event) => {
    const button = of(event);
    if (button && kept !== button) { show(button); kept = button; } else if (!tip.contains(event.target)) hide();
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
})();
