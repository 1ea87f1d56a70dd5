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
    "Lam": "Λ",
    "lam": "λ",
}
_SIGNS = {"<->": "↔", "->": "→", "<-": "←", ">=": "≥", "<=": "≤", "!=": "≠", "+-": "±", "-+": "∓"}
_PARTS = re.compile(
    r"(?P<sign><->|->|<-|>=|<=|!=|\+-|-\+)"
    r"|(?P<shift>[_^])(?P<inside>\{(?:[^{}]|\{[^{}]*\})*\}|[-+]?[A-Za-z0-9*⋆]+)"
    r"|(?P<word>[A-Za-z]+)"
)


def typeset(text: str) -> Markup:
    """Subscripts, superscripts, Greek letters and signs: `s_star^{1/L} >= gamma` as it would be printed."""
    out, end = Markup(), 0
    for found in _PARTS.finditer(text):
        out += escape(text[end : found.start()])
        end = found.end()
        if sign := found["sign"]:
            out += _SIGNS[sign]
        elif shift := found["shift"]:
            tag = "sub" if shift == "_" else "sup"
            inside = found["inside"]
            inside = inside[1:-1] if inside.startswith("{") else inside
            out += Markup("<{0}>{1}</{0}>").format(tag, typeset(_squared(inside)))
        else:
            out += escape(_WORDS.get(found["word"], found["word"]))
    return out + escape(text[end:])


def _squared(name: str) -> str:
    """Names such as sigma2 mean squares."""
    return re.sub(r"^([a-z]+)2$", r"\1^2", name)
