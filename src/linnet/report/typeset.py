"""Formulas of claims and errata, written in plain text, as HTML that needs nothing from elsewhere."""

import re

from markupsafe import Markup, escape

_WORDS = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "delta": "δ",
    "eps": "ε",
    "eta": "η",
    "theta": "θ",
    "kappa": "κ",
    "lambda": "λ",
    "mu": "μ",
    "nu": "ν",
    "xi": "ξ",
    "pi": "π",
    "rho": "ρ",
    "sigma": "σ",
    "tau": "τ",
    "phi": "φ",
    "chi": "χ",
    "psi": "ψ",
    "omega": "ω",
    "Gamma": "Γ",
    "Delta": "Δ",
    "Theta": "Θ",
    "Lambda": "Λ",
    "Pi": "Π",
    "Sigma": "Σ",
    "Phi": "Φ",
    "Psi": "Ψ",
    "Omega": "Ω",
    "sqrt": "√",
    "inf": "∞",
    "star": "⋆",
    "sum": "∑",
    "grad": "∇",
    "Lam": "Λ",
    "lam": "λ",
}
_SIGNS = {
    "<->": "↔",
    "->": "→",
    "<-": "←",
    ">=": "≥",
    "<=": "≤",
    "!=": "≠",
    ">>": "≫",
    "<<": "≪",
    "+-": "±",
    "-+": "∓",
    "...": "…",
    "..": "…",
    "~": "∼",
    "-": "−",
}
_GREEK = "|".join(sorted((word for word, sign in _WORDS.items() if "Α" <= sign <= "ω"), key=len, reverse=True))
_HAT, _BAR = "\N{COMBINING CIRCUMFLEX ACCENT}", "\N{COMBINING MACRON}"
_PLAIN = (  # spellings of plain text, each with the one that the rest of this file reads
    (rf"\b({_GREEK}|[A-Za-z])(_[A-Za-z0-9]+)?_hat\b", rf"\1{_HAT}\2"),
    (r"\b([A-Z])(\d)hat\b", rf"\1{_HAT}_\2"),
    (r"\bxbar\b", f"x{_BAR}"),
    (r"\bC([12])\b", r"C_\1"),  # the papers' matrices and constants; claims are referred to by later numbers
    (r"\bvstar2\b", "v_star^2"),
    (r"\b(noise|sigma|chi)2(?![0-9A-Za-z])", r"\1^2"),
    (rf"\b({_GREEK}|[a-z])([01])\b(?!\.\d)", r"\1_\2"),
    (r"(?<!<)<(?! )([^<>=.;:]+,[^<>=.;:]+)(?<! )>(?!>)", r"⟨\1⟩"),
    (r"(\d|\b[dnmwr]|d_x|[)}]|\.\.\.) x (?=\d|[dnmwr]\b|\(|\.\.\. x|R\^)", r"\1 × "),
    (r"(?<=[\])\w]) o (?=[A-Z])", " ∘ "),
    (r"\bsqrt (?=\d)", "sqrt"),
)
_INSIDE = r"\{(?:[^{}]|\{[^{}]*\})*\}|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|[-+]?[A-Za-z0-9*⋆]+|[-+*]"
_PARTS = re.compile(
    r"(?<![A-Za-z_])(?P<mantissa>\d+(?:\.\d+)?)e(?P<exponent>[-+]?\d+)\b"
    r"|(?P<hyphen>(?<=[A-Za-z0-9])-(?=[A-Za-z]{2}))"
    r"|(?P<sign><->|->|<-|>=|<=|!=|>>|<<|\+-|-\+|\.\.\.?|~|-)"
    rf"|(?P<shift>[_^])(?P<inside>{_INSIDE})"
    rf"|(?P<word>[A-Za-z]+)(?P<accent>[{_HAT}{_BAR}]?)"
)
_BEFORE_A_WORD = re.compile(r" (?!(?:sqrt|hypot|cosh|sinh|exp|ln|log|tr)\b)(?:[A-Za-z]{2}|\d)")


def typeset(text: str) -> Markup:
    """Subscripts, superscripts, Greek letters, variables and signs: `s_star^{1/L} >= gamma` as it would be printed."""
    for spelling, read in _PLAIN:
        text = re.sub(spelling, read, text)
    return _set(text)


def _set(text: str) -> Markup:
    out, end = Markup(), 0
    for found in _PARTS.finditer(text):
        out += escape(text[end : found.start()])
        end = found.end()
        if found["mantissa"]:
            power = Markup("10<sup>{}</sup>").format(str(int(found["exponent"])).replace("-", "−"))
            out += power if found["mantissa"] == "1" else Markup("{} × {}").format(found["mantissa"], power)
        elif found["hyphen"]:
            greek = re.match(rf"(?:{_GREEK})\b", text[end:])
            out += "−" if greek else "-"
        elif sign := found["sign"]:
            hyphen = sign == "-" and re.search(r"[a-z]{2}$", text[: found.start()]) and text[end : end + 1].isalpha()
            out += "-" if hyphen else _SIGNS[sign]
        elif shift := found["shift"]:
            tag = "sub" if shift == "_" else "sup"
            inside = found["inside"]
            inside = inside[1:-1] if inside[0] in "{(" else inside
            out += Markup("<{0}>{1}</{0}>").format(tag, _set(_squared(inside)))
        else:
            out += _word(found["word"], found["accent"], text[: found.start()], text[end:])
    return out + escape(text[end:])


def _word(word: str, accent: str, before: str, after: str) -> Markup:
    """A name of mathematics as its sign, single letters and small Greek ones slanted; any other word as it is."""
    sign = _WORDS.get(word, word)
    if word == "sum" and not after.startswith("_"):
        return escape(word)
    variable = (len(word) == 1 and word != "I") or (word in _WORDS and len(sign) == 1 and "α" <= sign <= "ω")
    article = word in ("a", "A") and _BEFORE_A_WORD.match(after) and (word == "a" or re.search(r"(^|[.:] )$", before))
    label = re.match(r"\.?\d", after) or (word == "s" and before.endswith(("'", "’")))  # Lemma A.4, an id, the paper's
    differential = re.fullmatch(r"d[A-Ztfxs]", word) and re.match(r"[/_ ]|$", after)
    if differential or (variable and not article and not label):
        return Markup("<i>{}</i>").format(sign + accent)
    return escape(sign + accent)


def _squared(name: str) -> str:
    """Names such as sigma2 mean squares."""
    return re.sub(r"^([a-z]+)2$", r"\1^2", name)
