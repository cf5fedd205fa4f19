"use strict";
(() => {
  const root = document.documentElement;
  const dark = () => root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;

  const theme = document.querySelector("#theme");
  const name = () => { theme.textContent = dark() ? "Light" : "Dark"; };
  theme.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; name(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  name();
  document.querySelectorAll(".screen").forEach((button) => { button.hidden = false; });

  // "9.21 ± 0.30 GB/s" sorts by 9.21e9, "20.7 h" by its seconds, "+$12.30" by 12.3; what has no number comes last.
  const sizes = { k: 1e3, M: 1e6, G: 1e9, T: 1e12, m: 1e-3, µ: 1e-6, min: 60, h: 3600, day: 86400, days: 86400 };
  const key = (text) => {
    const found = text.replace(/[,$]/g, "").replace("−", "-").match(/^[^\d+-]*([+-]?\d+(?:\.\d+)?)(.*)$/);
    if (!found) return null;
    const unit = found[2].match(/(?:^|\s)([kMGTmµ](?=(?:B|bit|s)\b)|(?:min|h|days?)\b)/);
    return parseFloat(found[1]) * (unit ? sizes[unit[1]] : 1);
  };
  const before = (a, b, words) => {
    if (words) return a.localeCompare(b, "en", { numeric: true });
    const [x, y] = [key(a), key(b)];
    return x === null || y === null ? (x === null) - (y === null) : x - y;
  };
  const sort = (table, column, head) => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const words = head.classList.contains("t");
    const text = (row) => row.cells[column].textContent.trim();
    const unknown = (row) => /^(–|unknown|no price)?$/.test(text(row));
    const rows = [...table.tBodies[0].rows].sort((a, b) => unknown(a) - unknown(b)
      || (down ? -1 : 1) * before(text(a), text(b), words));
    table.tBodies[0].append(...rows);
  };
  for (const table of document.querySelectorAll("table.sorts")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      if (!head.textContent.trim()) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(table, column, head));
      head.append(button);
    });
  }

  // Above a table that can be filtered: a choice for each column of them, a search, and how many rows are left.
  const labelled = (name, control) => {
    const label = document.createElement("label");
    label.append(name, control);
    return label;
  };
  const filter = (table) => {
    const rows = [...table.tBodies[0].rows];
    const text = (row, column) => row.cells[column].textContent.trim();
    const form = document.createElement("form");
    form.className = "filters screen";
    const choices = table.dataset.filters.split(" ").map(Number).map((column) => {
      const choice = document.createElement("select");
      const values = [...new Set(rows.map((row) => text(row, column)))].sort((a, b) => before(a, b, true));
      choice.append(new Option("all", ""), ...values.map((value) => new Option(value)));
      form.append(labelled(table.tHead.rows[0].cells[column].textContent, choice));
      return [column, choice];
    });
    const search = document.createElement("input");
    search.type = "search";
    const count = document.createElement("output");
    const reset = document.createElement("button");
    reset.type = "reset";
    reset.textContent = "Show all";
    form.append(labelled("search", search), reset, count);
    const apply = () => {
      const words = search.value.toLowerCase();
      for (const row of rows) {
        row.hidden = !(choices.every(([column, choice]) => !choice.value || choice.value === text(row, column))
          && row.textContent.toLowerCase().includes(words));
      }
      count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
    };
    form.addEventListener("input", apply);
    form.addEventListener("reset", () => setTimeout(apply));
    form.addEventListener("submit", (event) => event.preventDefault());
    table.closest(".scroll").before(form);
    apply();
  };
  document.querySelectorAll("table[data-filters]").forEach(filter);

  for (const copy of document.querySelectorAll("button.copy")) {
    copy.addEventListener("click", async () => {
      const text = copy.previousElementSibling;
      try {
        await navigator.clipboard.writeText(text.textContent);
        copy.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(text);
      }
    });
  }
  document.querySelector("#print").addEventListener("click", () => print());
  addEventListener("beforeprint", () => {
    document.querySelectorAll("details.run").forEach((run) => { run.open = true; });
  });
})();
