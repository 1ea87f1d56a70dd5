// What a room says: a sentence, numbers with their names, and whether it is still computing.
// model.drawn is the move that has been drawn; it is marked once the browser has painted it.

export function render({ model, el }) {
  const place = document.createElement("div");
  place.className = "words";
  const sentence = document.createElement("p");
  sentence.setAttribute("role", "status");
  const numbers = document.createElement("dl");
  place.append(sentence, numbers);
  const say = () => {
    sentence.textContent = model.sentence;
    sentence.classList.toggle("trouble", model.trouble);
  };
  const tell = () =>
    numbers.replaceChildren(
      ...Object.entries(model.numbers).map(([name, value]) => {
        const pair = document.createElement("div");
        const [term, told] = [document.createElement("dt"), document.createElement("dd")];
        term.textContent = name;
        told.textContent = value;
        pair.append(term, told);
        return pair;
      }),
    );
  const busy = () => {
    place.classList.toggle("busy", model.busy);
    place.setAttribute("aria-busy", String(model.busy));
  };
  model.on("sentence", say);
  model.on("trouble", say);
  model.on("numbers", tell);
  model.on("busy", busy);
  model.on("drawn", () => requestAnimationFrame(() => setTimeout(() => {
    performance.mark(`drawn ${model.drawn}`);
    document.documentElement.dataset.drawn = model.drawn;
  })));
  model.on("whole", () => requestAnimationFrame(() => setTimeout(() => {
    performance.mark(`whole ${model.whole}`);
    document.documentElement.dataset.whole = model.whole;
  })));
  say();
  tell();
  busy();
  return place;
}
