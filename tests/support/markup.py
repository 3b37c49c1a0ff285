"""Texts that a page could take for its own markup."""

MARKUP = "</script></title></svg><img src=x onerror='window.injected=1'><b id=injected>&amp;\"'`"
CORPUS = {
    "markup": MARKUP,
    "a comment in a script": "<!--<script>" + MARKUP,
    "a template": "</template></figure></section>" + MARKUP,
    "an attribute": '" onmouseover="window.injected=1" x="' + MARKUP,
    "a style": "</style><style>*{display:none}</style>" + MARKUP,
    "a CDATA section": "]]><![CDATA[" + MARKUP,
    "right to left": "\u202e\u2066\u200f" + MARKUP + "\u2069",
    "lines and terminals": "\r\n\u2028\u2029\x1b[2J\x00\x85\ufffe" + MARKUP,
    "templates of JavaScript": "${window.injected=1}`\\u003cimg" + MARKUP,
    "emoji and Chinese": "👩‍💻模型\U000e0041" + MARKUP,
    "keys of JavaScript's own": "__proto__" + MARKUP,
}
