"""Formulas as MathML, which browsers typeset themselves: LaTeX, and the plain text of claims and errata."""

import functools
import re

from latex2mathml.converter import convert
from markupsafe import Markup, escape

_ANY_GREEK = (
    "alpha|beta|gamma|delta|eps|eta|theta|kappa|lambda|lam|mu|nu|xi|pi|rho|sigma|tau|phi|chi|psi|omega"
    "|Gamma|Delta|Theta|Lambda|Lam|Pi|Sigma|Phi|Psi|Omega"
)
_OTHER = {"eps": "varepsilon", "phi": "varphi", "lam": "lambda", "Lam": "Lambda", "inf": "infty", "grad": "nabla"}
_COMMANDS = {name: name for name in (*_ANY_GREEK.split("|"), "star", "sum")} | _OTHER  # LaTeX has a symbol for them
_SIGNS = {"<->": "↔", "->": "→", "<-": "←", ">=": "≥", "<=": "≤", "!=": "≠", ">>": "≫", "<<": "≪"}
_SIGNS |= {"+-": "±", "-+": "∓", "...": "…", "..": "…", "~": "∼", "-": "−"}
_ESCAPED = str.maketrans({sign: f"\\{sign}" for sign in "%&#{}"})
_ACCENTS = {"\N{COMBINING CIRCUMFLEX ACCENT}": "hat", "\N{COMBINING MACRON}": "bar"}
_HAT, _BAR = _ACCENTS
_SPELLINGS = (  # of plain text, each with the one that the rest of this file reads
    (rf"\b({_ANY_GREEK}|[A-Za-z])(_[A-Za-z0-9]+)?_hat\b", rf"\1{_HAT}\2"),
    (r"\b([A-Z])(\d)hat\b", rf"\1{_HAT}_\2"),
    (r"\bxbar\b", f"x{_BAR}"),
    (r"\bC([12])\b", r"C_\1"),  # the papers' matrices and constants; claims are referred to by later numbers
    (r"\bvstar2\b", "v_star^2"),
    (r"\b(noise|sigma|chi)2(?![0-9A-Za-z])", r"\1^2"),
    (rf"\b({_ANY_GREEK}|[a-z])([01])\b(?!\.\d)", r"\1_\2"),
    (r"(?<!<)<(?! )([^<>=.;:]+,[^<>=.;:]+)(?<! )>(?!>)", r"⟨\1⟩"),
    (r"(\d|\b[dnmwr]|d_x|[)}]|\.\.\.) x (?=\d|[dnmwr]\b|\(|\.\.\. x|R\^)", r"\1 × "),
    (r"(?<=[\])\w]) o (?=[A-Z])", " ∘ "),
    (r"(?<![A-Za-z])sqrt(?![a-z])(?: (?=\d))?", "√"),
)
_INSIDE = r"\{(?:[^{}]|\{[^{}]*\})*\}|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|[-+]?[A-Za-z0-9*⋆]+|[-+*]"
_SHIFT = rf"(?P<shift>[_^])(?P<inside>{_INSIDE})"
_WORD = rf"(?P<word>[A-Za-z]+)(?P<accent>[{_HAT}{_BAR}]?)"
_PARTS = re.compile(
    r"(?<![A-Za-z_])(?P<mantissa>\d+(?:\.\d+)?)e(?P<exponent>[-+]?\d+)\b"
    r"|(?P<hyphen>(?<=[A-Za-z0-9])-(?=[A-Za-z]{2}))"
    rf"|(?P<formula>(?:[A-Za-z]+[{_HAT}{_BAR}]?|\d+|[])|}}⟩])?(?:[_^](?:{_INSIDE}))+)"
    r"|(?P<sign><->|->|<-|>=|<=|!=|>>|<<|\+-|-\+|\.\.\.?|~|-)"
    rf"|{_WORD}"
)
_FORMULA_PARTS = re.compile(rf"{_SHIFT}|{_WORD}|.")
_BEFORE_A_WORD = re.compile(r" (?!(?:sqrt|hypot|cosh|sinh|exp|ln|log|tr)\b)(?:[A-Za-z]{2}|\d)")


@functools.lru_cache(maxsize=4096)
def mathml(latex: str, display: str = "inline") -> str:
    """LaTeX as MathML, without the namespace, which HTML does not need. A command that the converter does not
    support is a `ValueError`.
    """
    found = convert(latex, display=display)
    if "\\" in found or "merror" in found:
        raise ValueError(f"this formula has a command that cannot be typeset: {latex}")
    return found.replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "")


def typeset(text: str) -> Markup:
    """Plain text with its formulas as MathML: `s_star^{1/L} >= gamma` as it would be printed."""
    for spelling, read in _SPELLINGS:
        text = re.sub(spelling, read, text)
    out, end = Markup(), 0
    for found in _PARTS.finditer(text):
        out += escape(text[end : found.start()])
        end = found.end()
        if found["mantissa"]:
            factor = "" if found["mantissa"] == "1" else rf"{found['mantissa']} \times "
            out += Markup(mathml(f"{factor}10^{{{int(found['exponent'])}}}"))
        elif found["hyphen"]:
            out += "−" if re.match(rf"(?:{_ANY_GREEK})\b", text[end:]) else "-"
        elif found["formula"]:
            out += Markup(mathml(_latex(found["formula"])))
        elif sign := found["sign"]:
            hyphen = sign == "-" and re.search(r"[a-z]{2}$", text[: found.start()]) and text[end : end + 1].isalpha()
            out += "-" if hyphen else _SIGNS[sign]
        elif _is_variable(found["word"], text[: found.start()], text[end:]):
            out += Markup(mathml(_symbol(found["word"], found["accent"])))
        else:
            out += found[0]
    return out + escape(text[end:])


def _latex(formula: str) -> str:
    """A formula of plain text as LaTeX."""
    out = ""
    for found in _FORMULA_PARTS.finditer(formula):
        if found["shift"]:
            inside = found["inside"]
            inside = inside[1:-1] if inside[0] in "{(" else re.sub(r"^([a-z]+)2$", r"\1^2", inside)  # sigma2: squared
            out += f"{found['shift'] if out else '{}' + found['shift']}{{{_latex(inside)}}}"
        elif found["word"]:
            out += _symbol(found["word"], found["accent"])
        else:
            out += found[0].translate(_ESCAPED)
    return out


def _symbol(word: str, accent: str = "") -> str:
    """A name of mathematics as LaTeX: letters and differentials as variables, other words upright."""
    if word in _COMMANDS:
        found = f"\\{_COMMANDS[word]} "
    else:
        found = word if len(word) == 1 or re.fullmatch(r"d[A-Ztfxs]", word) else rf"\mathrm{{{word}}}"
    return rf"\{_ACCENTS[accent]}{{{found}}}" if accent else found


def _is_variable(word: str, before: str, after: str) -> bool:
    """Whether a word of the text is a symbol: a letter, a Greek letter, a differential; not an article, nor a label."""
    if re.fullmatch(r"d[A-Ztfxs]", word):
        return re.match(r"[/_ ]|$", after) is not None
    article = word in ("a", "A") and _BEFORE_A_WORD.match(after) and (word == "a" or re.search(r"(^|[.:] )$", before))
    label = re.match(r"\.?\d", after) or (word == "s" and before.endswith(("'", "’")))  # Lemma A.4, an id, the paper's
    if word in _COMMANDS:
        return word != "sum" and not label
    return len(word) == 1 and word != "I" and not article and not label
