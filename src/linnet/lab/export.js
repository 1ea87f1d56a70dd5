// The Python code and the TOML file of what is shown, each with a button that copies it.

export function render({ model }) {
  const place = document.createElement("div");
  place.className = "export";
  const block = (title, name) => {
    const details = document.createElement("details");
    details.open = name === "code";
    const summary = document.createElement("summary");
    summary.textContent = title;
    const text = document.createElement("pre");
    text.tabIndex = 0;
    text.setAttribute("aria-label", title);
    text.dataset.name = name;
    const copy = document.createElement("button");
    copy.type = "button";
    copy.textContent = "Copy";
    copy.setAttribute("aria-label", `Copy ${title}`);
    copy.addEventListener("click", async () => {
      await navigator.clipboard.writeText(model[name]);
      copy.textContent = "Copied";
      setTimeout(() => (copy.textContent = "Copy"), 1500);
    });
    const fill = () => {
      text.textContent = model[name];
      details.hidden = !model[name];
    };
    model.on(name, fill);
    fill();
    details.append(summary, copy, text);
    return details;
  };
  place.append(block("Python", "code"), block("TOML", "toml"));
  return place;
}
