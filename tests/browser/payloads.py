"""Texts that would act where they are not escaped, put in the place of every text of a document that takes them.

Every document of a kind is loaded as Stash loads it, and each text, and each name of a dictionary, is replaced where
the document is still shown after that. Knows documents as JSON, and nothing of how they are rendered.
"""

import copy
import itertools
import json
from dataclasses import fields, is_dataclass

_marks = itertools.count(10_000)
PAYLOADS = (
    '"><script>hit({m})</script>',
    "'><img src=x onerror=hit({m})>",
    '" onload=hit({m}) autofocus onfocus=hit({m}) x="',
    "</style></title></svg><script>hit({m})</script>",
    "<meta http-equiv=refresh content='0;url=//a.invalid/{m}'>",
    "<form action=//a.invalid/{m}><input autofocus onfocus=hit({m})></form>",
    "<base href=//a.invalid/{m}/><iframe srcdoc='<script>parent.hit({m})</script>'>",
    "<link rel=stylesheet href=//a.invalid/{m}><style>*{{background:url(//a.invalid/{m})}}</style>",
    "javascript:hit({m})//",
    "[x](javascript:hit({m})) ![x](//a.invalid/{m}) <https://a.invalid/{m}>",
    "`a\\|<img src=x onerror=hit({m})>` ``<b>``",
    "-->]]><svg onload=hit({m})>{{{{7*7}}}}<a href=javascript:hit({m})>{m}</a>",
    "[link=https://a.invalid/{m}]{m}[/link]\x1b]8;;http://a.invalid\x07{m}\x9b2J\u202e",
)

LOOK = """(() => {
  const bad = [...(self.hits || [])].map((mark) => `script ran: ${mark}`);
  const acts = ["iframe", "object", "embed", "base", "form", "img", "image", "input", "foreignobject", "animate",
    "set", "audio", "video", "use", "frame", "textarea", "template", "math"];
  for (const each of document.querySelectorAll("*")) {
    const name = each.localName.toLowerCase();
    if (each.closest("form.filters")) continue;  // of the page's own script
    if (acts.includes(name)) bad.push(`<${name}>`);
    const own = each.textContent.startsWith('"use strict"') || each.type === "application/json" || each.id === "hit";
    if (name === "script" && !own) bad.push("<script>");
    if (name === "meta" && /refresh|cookie/i.test(each.httpEquiv)) bad.push("<meta>");
    if (name === "link" && each.rel !== "icon") bad.push("<link>");
    if (name === "style" && each.textContent.includes("a.invalid")) bad.push("<style>");
    for (const {name: attribute, value} of each.attributes) {
      if (/^on|^srcdoc$/i.test(attribute)
        || attribute === "style" && !/^text-align:\\w+$/.test(value)) bad.push(`${attribute}=`);
      if (/^(xlink:href|href|src|action|formaction|srcset|background|data|poster)$/i.test(attribute)
        && value !== "data:," && /^\\s*([a-z][\\w+.-]*:|[/\\\\]{2})/i.test(value)) bad.push(`${attribute}=${value}`);
    }
  }
  return [...new Set(bad)];
})()"""
"""What on the page acts and is not the page's own."""

HIT = "<script id=hit>self.hits = []; self.hit = (mark) => hits.push(mark)</script>"
"""What payloads call, for pages without a policy."""


def trails(document, above=()):
    """Where texts and names of dictionaries are; each once, whatever the item of a list."""
    if isinstance(document, dict):
        if document and above:
            yield (*above, "=")
        for name, value in document.items():
            yield from trails(value, (*above, name))
    elif isinstance(document, list):
        yield from dict.fromkeys(
            trail for value in document for trail in trails(value, (*above, "*"))
        )
    elif isinstance(document, str):
        yield above


def replace_text(document, trail, text):
    """``document`` with ``text`` at the end of a trail; numbered where names of a dictionary have to differ."""
    if not trail:
        return text if isinstance(document, str) else document
    head, rest = trail[0], trail[1:]
    if head == "=" and isinstance(document, dict):
        return {f"{text}{number or ''}": value for number, value in enumerate(document.values())}
    if head == "*" and isinstance(document, list):
        return [replace_text(value, rest, text) for value in document]
    if isinstance(document, dict) and head in document:
        return {**document, head: replace_text(document[head], rest, text)}
    return document


def hostile(document, payload, path, shows):
    """Leave at ``path`` the document with the payload wherever it is still shown; how many places that are."""
    taken, made = 0, copy.deepcopy(document)
    # Names of dictionaries last, deepest first: other trails lead through them.
    places = sorted(dict.fromkeys(trails(document)), key=lambda each: (each[-1] == "=", -len(each)))
    for number, trail in enumerate(places):
        tried = replace_text(made, trail, payload.format(m=number))
        path.write_text(json.dumps(tried), encoding="utf-8")
        try:
            shows(path)
        except Exception:
            continue
        taken, made = taken + 1, tried
    path.write_text(json.dumps(made), encoding="utf-8")
    return taken


def hostile_page(part, payload):
    """A page, or any part of it, with the payload in the place of every text, whatever a document lets through."""
    if isinstance(part, str):
        return payload.format(m=next(_marks)) if part else part
    if is_dataclass(part) and not isinstance(part, type):
        return type(part)(
            **{each.name: hostile_page(getattr(part, each.name), payload) for each in fields(part)}
        )
    if isinstance(part, tuple):
        return tuple(hostile_page(each, payload) for each in part)
    if isinstance(part, dict):
        return {key: hostile_page(value, payload) for key, value in part.items()}
    return part
