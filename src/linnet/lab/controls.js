// The controls of a page as native inputs, so that keyboards, screen readers and phones know them.
// model.fields lists them, model.values has their values; every change counts model.requested up.

const RESOLUTION = 1000;

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

function spoken(number, field) {
  const size = Math.abs(number);
  let text;
  if (field.whole) text = number.toLocaleString("en-US");
  else if (size !== 0 && (size < 0.001 || size >= 100000)) text = number.toExponential(1).replace("e+", "e");
  else text = String(Number(number.toPrecision(field.digits)));
  return field.unit ? `${text} ${field.unit}` : text;
}

// a slider's place, from 0 to RESOLUTION, and the value that it means
function placed(field, value) {
  if (field.rungs.length) return field.rungs.indexOf(value);
  if (field.log) return Math.round((RESOLUTION * Math.log(value / field.low)) / Math.log(field.high / field.low));
  return value;
}

function meant(field, place) {
  if (field.rungs.length) return field.rungs[place];
  if (!field.log) return place;
  const value = field.low * (field.high / field.low) ** (place / RESOLUTION);
  const rounded = field.whole ? Math.round(value) : Number(value.toPrecision(3));
  return Math.min(Math.max(rounded, field.low), field.high);
}

export function render({ model }) {
  let values = { ...model.values };
  const update = {}; // by name: puts a value into its input
  // the number comes after what it counts: whoever has the number has the change
  const count = (move) => {
    const asked = model.requested + 1;
    performance.mark(`requested ${asked}`);
    document.documentElement.dataset.requested = asked;
    move(asked);
    model.requested = asked;
  };
  const send = (changes) => {
    if (Object.entries(changes).every(([name, value]) => JSON.stringify(values[name]) === JSON.stringify(value))) return;
    values = { ...values, ...changes };
    count(() => (model.values = values));
    for (const name of Object.keys(changes)) update[name]?.(values[name]);
    remember();
  };

  const remember = () => {
    if (!model.addressed) return;
    const query = model.fields
      .filter((field) => field.kind === "file" ? values[field.name] : JSON.stringify(values[field.name]) !== JSON.stringify(field.value))
      .map((field) => `${field.name}=${encodeURIComponent(written(field, values[field.name])).replaceAll("%2C", ",")}`)
      .join("&");
    history.replaceState(null, "", query ? `?${query}` : location.pathname);
    for (const link of document.querySelectorAll("a[data-download]")) link.search = query;
  };
  const written = (field, value) => (field.kind === "switch" ? (value ? "1" : "0") : Array.isArray(value) ? value.join(",") : String(value));

  function slider(field) {
    const id = `c-${field.name}`;
    const shown = element("output", { for: id });
    const span = field.rungs.length
      ? { min: 0, max: field.rungs.length - 1, step: 1 }
      : field.log
        ? { min: 0, max: RESOLUTION, step: 1 }
        : { min: field.low, max: field.high, step: field.whole ? 1 : field.step };
    const input = element("input", { id, type: "range", ...span });
    update[field.name] = (value) => {
      input.value = placed(field, value);
      shown.textContent = spoken(value, field);
      input.setAttribute("aria-valuetext", spoken(value, field));
    };
    input.addEventListener("input", () => send({ [field.name]: meant(field, Number(input.value)) }));
    return element("div", { class: "control" }, element("label", { for: id, text: field.label }), shown, input);
  }

  function choice(field) {
    const id = `c-${field.name}`;
    const input = element("select", { id }, ...field.options.map(([value, text]) => element("option", { value, text })));
    update[field.name] = (value) => (input.value = value);
    input.addEventListener("change", () => send({ [field.name]: input.value }));
    return element("div", { class: "control" }, element("label", { for: id, text: field.label }), input);
  }

  function several(field) {
    const inputs = field.options.map(([value, text]) => {
      const input = element("input", { id: `c-${field.name}-${value}`, type: "checkbox", value });
      input.addEventListener("change", () => send({ [field.name]: inputs.filter((other) => other.checked).map((other) => other.value) }));
      return input;
    });
    update[field.name] = (value) => inputs.forEach((input) => (input.checked = value.includes(input.value)));
    const rows = inputs.map((input, i) => element("div", { class: "control switch" }, input, element("label", { for: input.id, text: field.options[i][1] })));
    return element("fieldset", { class: "several" }, element("legend", { text: field.label }), element("div", { class: "rows" }, ...rows));
  }

  function toggle(field) {
    const id = `c-${field.name}`;
    const input = element("input", { id, type: "checkbox" });
    update[field.name] = (value) => (input.checked = value);
    input.addEventListener("change", () => send({ [field.name]: input.checked }));
    return element("div", { class: "control switch" }, input, element("label", { for: id, text: field.label }));
  }

  function bars(field) {
    const inputs = field.value.map((_, i) =>
      element("input", {
        type: "range",
        class: "bar",
        min: field.low,
        max: field.high,
        step: field.step,
        orient: "vertical",
        "aria-label": `${field.label}, ${i + 1} of ${field.value.length}`,
        oninput: () => send({ [field.name]: inputs.map((input) => Number(input.value)) }),
      }),
    );
    const shown = inputs.map(() => element("span", { "aria-hidden": "true" }));
    update[field.name] = (value) =>
      value.forEach((number, i) => {
        inputs[i].value = number;
        inputs[i].style.setProperty("--share", (number - field.low) / (field.high - field.low));
        shown[i].textContent = Number(number.toPrecision(3));
      });
    const columns = inputs.map((input, i) => element("div", { class: "column" }, input, shown[i]));
    return element("fieldset", { class: "bars" }, element("legend", { text: field.label }), element("div", { class: "row" }, ...columns));
  }

  function player(field) {
    const shell = slider(field);
    const input = shell.querySelector("input");
    let timer = null;
    const button = element("button", { type: "button", class: "play", text: "▶ Play", "aria-pressed": "false" });
    const still = () => {
      clearInterval(timer);
      timer = null;
      button.textContent = "▶ Play";
      button.setAttribute("aria-pressed", "false");
    };
    button.addEventListener("click", () => {
      if (timer) return still();
      button.textContent = "❚❚ Pause";
      button.setAttribute("aria-pressed", "true");
      if (Number(input.value) >= field.high) send({ [field.name]: field.low });
      timer = setInterval(() => {
        if (!input.isConnected || Number(input.value) >= field.high) return still();
        send({ [field.name]: Math.min(Number(input.value) + field.step, field.high) });
      }, 120);
    });
    shell.append(button);
    return shell;
  }

  function file(field) {
    const id = `c-${field.name}`;
    const input = element("input", { id, type: "file", accept: field.accept });
    const take = async (chosen) => {
      if (!chosen) return;
      const bytes = chosen.size <= field.most ? new Uint8Array(await chosen.arrayBuffer()) : null;
      let text = "";
      for (let i = 0; bytes && i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
      // with its number, so that the same file may be dropped again
      count((asked) => (model.upload = { name: chosen.name, size: chosen.size, content: bytes ? btoa(text) : null, asked }));
    };
    input.addEventListener("change", () => take(input.files[0]));
    const shown = element("output", { for: id });
    update[field.name] = (value) => (shown.textContent = value ? value.slice(value.indexOf("/") + 1) : "");
    const place = element("div", { class: "drop" }, element("label", { for: id, text: field.label }), shown, input, element("span", { text: "or drop it here" }));
    place.addEventListener("dragover", (event) => {
      event.preventDefault();
      place.classList.add("over");
    });
    place.addEventListener("dragleave", () => place.classList.remove("over"));
    place.addEventListener("drop", (event) => {
      event.preventDefault();
      place.classList.remove("over");
      take(event.dataTransfer.files[0]);
    });
    return place;
  }

  const kinds = { slider, choice, several, switch: toggle, bars, player, file };
  const form = element("form", { class: "controls", onsubmit: (event) => event.preventDefault() });
  const build = () => {
    form.replaceChildren();
    const presets = Object.entries(model.presets);
    if (presets.length) {
      const picked = element(
        "select",
        { id: "c-preset" },
        element("option", { value: "", text: "choose …" }),
        ...presets.map(([name]) => element("option", { value: name, text: name })),
      );
      picked.addEventListener("change", () => {
        if (!picked.value) return;
        const first = Object.fromEntries(model.fields.map((field) => [field.name, field.value]));
        send({ ...first, ...model.presets[picked.value] });
        picked.value = "";
      });
      form.append(element("div", { class: "control" }, element("label", { for: "c-preset", text: "Show me" }), picked));
    }
    let group = null;
    let place = form;
    for (const field of model.fields) {
      if (field.group !== group) {
        group = field.group;
        place = group ? element("fieldset", { class: "group" }, element("legend", { text: group })) : form;
        if (group) form.append(place);
      }
      const made = kinds[field.kind](field);
      if (field.hint) {
        made.append(element("p", { class: "hint", text: field.hint, id: `h-${field.name}` }));
        made.querySelector("input,select")?.setAttribute("aria-describedby", `h-${field.name}`);
      }
      place.append(made);
      for (const [label, names] of Object.entries(model.resets)) {
        if (names.at(-1) !== field.name) continue;
        const first = () => send(Object.fromEntries(model.fields.filter((other) => names.includes(other.name)).map((other) => [other.name, other.value])));
        place.append(element("button", { type: "button", class: "again", text: label, onclick: first }));
      }
    }
    form.append(element("button", { type: "button", class: "again", text: "As at first", onclick: () => send(Object.fromEntries(model.fields.map((field) => [field.name, field.value]))) }));
    for (const [name, value] of Object.entries(values)) update[name]?.(value);
    remember();
  };
  build();
  document.documentElement.dataset.requested = model.requested;
  const tone = () => (model.dark = getComputedStyle(document.documentElement).colorScheme === "dark" || (getComputedStyle(document.documentElement).colorScheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches));
  if (model.addressed) {
    tone();
    addEventListener("linnet-tone", tone);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tone);
  }
  model.on("fields", () => {
    values = { ...model.values };
    build();
  });
  model.on("values", () => {
    values = { ...model.values };
    for (const [name, value] of Object.entries(values)) {
      if (form.getRootNode().activeElement?.id !== `c-${name}`) update[name]?.(value);
    }
    remember();
  });
  return form;
}
