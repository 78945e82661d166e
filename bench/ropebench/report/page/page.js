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
    place(button);
  }
  function place(button) {
    const at = button.getBoundingClientRect();
    tip.classList.toggle("up", at.top > innerHeight / 2); // on a phone: the half that the number is not in
    const below = at.bottom + 6 + tip.offsetHeight <= innerHeight;
    tip.style.top = Math.max(4, below ? at.bottom + 6 : at.top - 6 - tip.offsetHeight) + "px";
    tip.style.left = Math.max(4, Math.min(at.left, innerWidth - tip.offsetWidth - 8)) + "px";
  }
  function hide() {
    tip.hidden = true;
    tip.classList.remove("kept");
    kept = null;
    if (shownFor) shownFor.removeAttribute("aria-describedby");
    shownFor = null;
  }
  const of = (event) => event.target.closest && event.target.closest("button.v");
  // A finger does not hover, and its focus comes before its click: only the click counts.
  const mouse = (event) => event.pointerType === "mouse" && of(event);
  document.addEventListener("pointerover", (event) => { if (mouse(event) && !kept) show(of(event)); });
  // A pointer that leaves one number does not take away what the keyboard is at.
  const left = (button) => button && !kept && button === shownFor && button !== document.activeElement;
  document.addEventListener("pointerout", (event) => { if (mouse(event) && left(of(event))) hide(); });
  document.addEventListener("focusin", (event) => {
    if (of(event) && kept !== of(event) && of(event).matches(":focus-visible")) { kept = null; show(of(event)); }
  });
  document.addEventListener("focusout", (event) => { if (of(event) && !kept) hide(); });
  document.addEventListener("click", (event) => {
    const button = of(event);
    if (button && kept !== button) { show(button); kept = button; tip.classList.add("kept"); } else if (!tip.contains(event.target)) hide();
  });
  document.addEventListener("scroll", () => { if (shownFor) place(shownFor); }, true);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
})();
