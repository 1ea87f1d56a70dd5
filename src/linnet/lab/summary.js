// The headline, the quantities, and the tables of a page, and whether it is still computing.
// model.drawn is the number of the change that has been drawn; it is marked once the browser has painted it.

export function render({ model, el }) {
  const place = document.createElement("div");
  place.className = "summary";
  const headline = document.createElement("p");
  headline.setAttribute("role", "status");
  const list = document.createElement("dl");
  const tables = document.createElement("div");
  place.append(headline, list, tables);
  const showHeadline = () => {
    headline.textContent = model.headline;
    headline.classList.toggle("error", model.error);
  };
  const showQuantities = () =>
    list.replaceChildren(
      ...Object.entries(model.quantities).map(([name, value]) => {
        const pair = document.createElement("div");
        const [term, text] = [document.createElement("dt"), document.createElement("dd")];
        term.textContent = name;
        text.textContent = value;
        pair.append(term, text);
        return pair;
      }),
    );
  const showTables = () => tables.replaceChildren(...model.tables.map(table));
  const busy = () => {
    place.classList.toggle("busy", model.busy);
    place.setAttribute("aria-busy", String(model.busy));
  };
  model.on("headline", showHeadline);
  model.on("error", showHeadline);
  model.on("quantities", showQuantities);
  model.on("tables", showTables);
  model.on("busy", busy);
  // a frame and a task later the browser has painted; a hidden page is not painted at all
  const painted = (name) => {
    const number = model[name];
    let marked = false;
    const mark = () => {
      if (marked) return;
      marked = true;
      performance.mark(`${name} ${number}`);
      document.documentElement.dataset[name] = number;
    };
    requestAnimationFrame(() => setTimeout(mark));
    setTimeout(mark, 1000);
  };
  for (const name of ["drawn", "complete"]) {
    model.on(name, () => painted(name));
    painted(name);
  }
  showHeadline();
  showQuantities();
  showTables();
  busy();
  return place;
}

// a table with a caption, in a box of its own that scrolls where it is too wide
function table({ title, columns, rows }) {
  const box = document.createElement("div");
  box.className = "wide";
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", title);
  const made = document.createElement("table");
  made.createCaption().textContent = title;
  const fill = (row, kind, cells) => {
    for (const text of cells) {
      const cell = document.createElement(kind);
      cell.textContent = text;
      row.append(cell);
    }
  };
  fill(made.createTHead().insertRow(), "th", columns);
  const body = made.createTBody();
  for (const cells of rows) fill(body.insertRow(), "td", cells);
  box.append(made);
  return box;
}
