"""Mistakes in `styles/pixels.py`."""

from tests.bench.mutants.fault import Fault

QUERY = "q = self.q(h_).reshape(b * self.heads, c // self.heads, h * w)"
KEY = "k = self.k(h_).reshape(b * self.heads, c // self.heads, h * w)"
VALUE = "v = self.v(h_).reshape(b * self.heads, c // self.heads, h * w)"
SCORES = "w_ = torch.bmm(q.permute(0, 2, 1), k)"
SCALE = "w_ = w_ * (c // self.heads) ** -0.5"
SOFTMAX = "w_ = torch.softmax(w_, dim=2)"
CONTEXT = "h_ = torch.bmm(v, w_.permute(0, 2, 1))"
MERGE = "h_ = h_.reshape(b, c, h, w)"
OUT = "return x + self.proj_out(h_)"

FAULTS = (
    Fault("ATN101", f"        {SCALE}\n", "", blame=(SCORES, SOFTMAX)),
    Fault("ATN102", SCALE, "w_ = w_ * c**-0.5"),
    Fault("ATN102", SCALE, "w_ = w_ * (h * w) ** -0.5"),
    Fault("ATN102", SCALE, "w_ = w_ / (c // self.heads)"),
    Fault("ATN103", SCORES, "w_ = torch.bmm(q.permute(0, 2, 1) * (c // self.heads) ** -0.5, k)", blame=(SCALE,)),
    Fault("ATN103", SCALE, "w_ = w_ / (c // self.heads) ** -0.5"),
    Fault("ATN104", SOFTMAX, "w_ = torch.softmax(w_, dim=1)"),
    Fault("ATN104", SOFTMAX, "w_ = torch.softmax(w_, dim=0)"),
    Fault("ATN105", f"        {SCALE}\n", "", also=((SOFTMAX, SOFTMAX + " * (c // self.heads) ** -0.5"),)),
    Fault("ATN106", SOFTMAX, "w_ = torch.softmax(torch.softmax(w_, dim=2), dim=2)"),
    Fault("ATN106", f"        {SOFTMAX}\n", "", blame=(CONTEXT,)),
    Fault("ATN107", CONTEXT, "h_ = torch.bmm(v, w_.permute(0, 1, 2))"),
    Fault("ATN107", CONTEXT, "h_ = torch.bmm(v, w_)"),
    Fault(
        "ATN303",
        QUERY,
        "q = self.q(h_).reshape(b * self.heads, h * w, c // self.heads).permute(0, 2, 1)",
        or_code="ATN310",
    ),
    Fault(
        "ATN303",
        VALUE,
        "v = self.v(h_).reshape(b * self.heads, h * w, c // self.heads).permute(0, 2, 1)",
        or_code="ATN310",
    ),
    Fault(
        "ATN303",
        KEY,
        "k = self.k(h_).reshape(b * self.heads, h * w, c // self.heads).permute(0, 2, 1)",
        or_code="ATN310",
    ),
    Fault("ATN304", MERGE, "h_ = h_.permute(0, 2, 1).reshape(b, c, h, w)", or_code="ATN310"),
    Fault("ATN403", VALUE, VALUE.replace("self.v(", "self.k(")),
    Fault("ATN403", KEY, KEY.replace("self.k(", "self.q(")),
    Fault(
        "ATN404", "w_ = torch.bmm(q.permute(0, 2, 1), k)", "w_ = torch.bmm(q.permute(0, 2, 1), k.roll(self.heads, 0))"
    ),
    Fault("ATN404", VALUE, "v = self.v(h_).flip(0).reshape(b * self.heads, c // self.heads, h * w)"),
    Fault("ATN406", OUT, "return x + self.proj_out(self.norm(x))", blame=(MERGE, CONTEXT)),
    Fault("ATN406", OUT, "return x + h_"),
    Fault("ATN406", OUT, "return x", blame=(MERGE, CONTEXT)),
)
