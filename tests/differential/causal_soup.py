"""Random models that write and obey no plan: products, masks, softmaxes and sums over rows and columns of positions, as they
come. Some are causal, most are not; whether one may be made incremental only its values can say.

    causal_soup.py SEED         prints a model
"""
import random
import sys

WIDTH, VOCAB = 4, 9
MASKS = ["causal_mask(x, x)", "transpose(causal_mask(x, x), 0, 1)", "not causal_mask(x, x)",
         "positions(x, 1) >= positions(x, 1)[:, none]", "positions(x, 1) > positions(x, 1)[:, none] + 1",
         "positions(x, 1) + 1 > positions(x, 1)[:, none]", "positions(x, 1) * 2 > positions(x, 1)[:, none] * 2",
         "causal_mask(x, x) or positions(x, 1) == 2", "causal_mask(x, x) and positions(x, 1) == 2",
         "f32(positions(x, 1)) - f32(positions(x, 1)[:, none]) > 0.5", "positions(x, 1) * 2 > positions(x, 1)[:, none]",
         "2 * positions(x, 1)[:, none] < positions(x, 1)", "positions(x, 1) // 2 > positions(x, 1)[:, none]"]
FILLS = ["-inf", "-inf", "0", "0", "-1e9", "1"]


class Soup:
    """x: f32[batch, time, WIDTH] and s: f32[batch, time, time] are changed in turns."""
    near_miss, ragged = None, False

    def __init__(self, seed):
        r = self.rng = random.Random(seed)
        self.lines = [f"x = embed(ids) + sinusoid(positions(ids, 1), {WIDTH})", "s = x @ transpose(x, 1, 2)"]
        self.hide()
        for _ in range(r.randint(2, 7)):
            r.choice([self.hide, self.change_scores, self.change_scores, self.change_rows, self.change_rows])()
        self.lines.append(r.choice(["x = x + tanh(s @ x)", "x = x + softmax(s) @ x", "x = x"]))
        self.options = ["--max-new-tokens", str(r.choice([4, 8])), "--num-beams", "2", "--pad-token-id", "0"]

    def hide(self):
        mask, fill = self.rng.choice(MASKS), self.rng.choice(FILLS)
        self.lines.append(self.rng.choice([f"s = where({mask}, {fill}, s)"] * 3 + [f"s = where({mask}, s, {fill})",
                          f"s = s + where({mask}, {fill}, 0)", f"s = s * f32(not ({mask}))"]))

    def change_scores(self):
        self.lines.append(self.rng.choice([
            "s = softmax(s)", "s = softmax(s)", "s = softmax(s, axis = 1)", "s = transpose(s, 1, 2)", "s = exp(s)",
            "s = relu(s)", "s = minimum(s, 3)", "s = maximum(s, 0)", "s = s + x @ transpose(x, 1, 2)", "s = s * 0.5",
            "s = s / (sum(s, keepdim = true) + 4)", "s = s - max(s, keepdim = true)", "s = sigmoid(s)", "s = -s",
            "s = x @ transpose(x, 1, 2)", "s = tanh(s @ s)", "s = (s + transpose(s, 1, 2)) / 2",
            "s = where(s > 0, s, 0)", "s = where(pad[:, none], 0, s)", "s = log_softmax(s)", "s = s * s"]))

    def change_rows(self):
        self.lines.append(self.rng.choice([
            "x = x + tanh(s @ x)", "x = x + tanh(s @ x)", "x = x + tanh(transpose(s, 1, 2) @ x)", "x = tanh(mix(x)) + x",
            "x = x + tanh(sum(s))[:, :, none]", "x = x + tanh(sum(s, axis = 1))[:, :, none]",
            "x = x + tanh(max(s))[:, :, none]", "x = x + tanh(transpose(transpose(x, 1, 2) @ transpose(s, 1, 2), 1, 2))",
            "x = x + tanh(min(where(causal_mask(x, x), inf, s)))[:, :, none]", "x = x + tanh(mean(s))[:, :, none]",
            "x = layer_norm(x, none, none, 1e-5)", "x = where(pad[:, :, none], 0.5, x)", "x = x[..., 1:] -> widen",
            "x = rotary(x, positions(x, 1))", "x = x + tanh(log(sum(exp(where(causal_mask(x, x), -inf, s)))))[:, :, none]"]))

    @property
    def source(self):
        members = [f"embed = Embedding({VOCAB}, {WIDTH})", f"mix = Linear({WIDTH}, {WIDTH})",
                   f"widen = Linear({WIDTH - 1}, {WIDTH})", f"head = Linear({WIDTH}, {VOCAB})"]
        used = [m for m in members if any(m.split()[0] in line for line in self.lines + ["head"])]
        body = ["pad = ids == 0"] + self.lines + ["logits = 3 * head(x)", "return logits"]
        return "\n".join(["model Soup {"] + [f"  {m}" for m in used] + ["  forward(ids: i32[batch, time]) {"] +
                         [f"    {line}" for line in body] + ["  }", "  generate ids from logits { bos = 1  pad = 0 }", "}"]) + "\n"

    @property
    def inputs(self):
        return {"ids": ("i32", [2, self.rng.choice([1, 3, 5])], VOCAB)}


def soup_model(seed):
    return Soup(seed)


if __name__ == "__main__":
    print(soup_model(int(sys.argv[1])).source, end="")
