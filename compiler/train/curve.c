/* The curve of a training run as an SVG picture.
 *
 * In: the loss of steps and of validations, in the order of steps. Out: a text that any browser shows: two lines over
 * the steps, an axis with round numbers, logarithmic if the losses span a factor of ten. Steps are thinned out to a
 * thousand points, each the mean of its neighbours, so the picture stays small. Refuses nothing: without a point it
 * says so. */
#include <math.h>

#include "train/journal.h"

enum { WIDTH = 800, HEIGHT = 480, LEFT = 70, RIGHT = 20, TOP = 40, BOTTOM = 50, MOST_POINTS = 1000 };

typedef struct Frame { /* what of the plane is shown */
  double most_step, low, high;
  bool is_log;
} Frame;

static double x_of(const Frame *frame, double step) { return LEFT + step / frame->most_step * (WIDTH - LEFT - RIGHT); }

static double height_of(const Frame *frame, double loss) { return frame->is_log ? log10(loss) : loss; }

static double y_of(const Frame *frame, double loss) {
  const double part = (height_of(frame, loss) - frame->low) / (frame->high - frame->low);
  return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM);
}

static void widen(Frame *frame, double *low, double *high, const Point *points, size_t n) {
  for (size_t i = 0; i < n; i++) {
    frame->most_step = fmax(frame->most_step, (double)points[i].step);
    *low = fmin(*low, points[i].loss);
    *high = fmax(*high, points[i].loss);
  }
}

/* 1, 2 or 5 times a power of ten, about a fifth of the range. */
static double round_step(double range) {
  const double power = pow(10, floor(log10(range / 5))), part = range / 5 / power;
  return power * (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10);
}

static Frame frame_of(const Point *steps, size_t n_steps, const Point *valid, size_t n_valid) {
  Frame frame = {.most_step = 1};
  double low = INFINITY, high = -INFINITY;
  widen(&frame, &low, &high, steps, n_steps);
  widen(&frame, &low, &high, valid, n_valid);
  frame.is_log = low > 0 && high >= 10 * low;
  frame.low = height_of(&frame, low);
  frame.high = height_of(&frame, high);
  const double margin = fmax(0.05 * (frame.high - frame.low), 1e-9 + 1e-6 * fabs(frame.high));
  frame.low -= margin;
  frame.high += margin;
  return frame;
}

static void add_line(StrBuf *out, const Frame *frame, const Point *points, size_t n, const char *color) {
  const size_t group = (n + MOST_POINTS - 1) / MOST_POINTS;
  strbuf_printf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"", color);
  for (size_t i = 0; i < n; i += group) {
    const size_t m = n - i < group ? n - i : group;
    double sum = 0;
    for (size_t k = i; k < i + m; k++) sum += points[k].loss;
    strbuf_printf(out, "%s%.1f,%.1f", i ? " " : "", x_of(frame, (double)points[i + m - 1].step),
                  y_of(frame, sum / (double)m));
  }
  strbuf_add(out, "\"/>\n");
}

static void add_text(StrBuf *out, double x, double y, const char *anchor, const char *color, const char *text) {
  strbuf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n", x, y, anchor, color,
                text);
}

static void add_height(StrBuf *out, const Frame *frame, double loss) {
  const double y = y_of(frame, loss);
  if (y < TOP - 1 || y > HEIGHT - BOTTOM + 1) return;
  strbuf_printf(out, "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/>\n", LEFT, y, WIDTH - RIGHT);
  add_text(out, LEFT - 6, y + 4, "end", "#444", arena_printf(out->arena, "%.6g", loss));
}

static void add_axes(StrBuf *out, const Frame *frame) {
  const double across = round_step(frame->most_step), up = round_step(frame->high - frame->low);
  for (double step = 0; step <= frame->most_step * 1.0001; step += across) {
    strbuf_printf(out, "<path d=\"M%.1f %dV%d\" stroke=\"#ddd\"/>\n", x_of(frame, step), TOP, HEIGHT - BOTTOM);
    add_text(out, x_of(frame, step), HEIGHT - BOTTOM + 18, "middle", "#444", arena_printf(out->arena, "%.6g", step));
  }
  if (frame->is_log) {
    for (double power = floor(frame->low); power <= frame->high; power++)
      for (int digit = 1; digit <= 5; digit += digit == 1 ? 1 : 3) add_height(out, frame, digit * pow(10, power));
  } else {
    for (double at = ceil(frame->low / up) * up; at <= frame->high; at += up)
      add_height(out, frame, fabs(at) < up / 2 ? 0 : at);
  }
  strbuf_printf(out, "<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"#444\"/>\n", LEFT, TOP, HEIGHT - BOTTOM,
                WIDTH - RIGHT);
  add_text(out, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 12, "middle", "#444", "step");
}

void curve_draw(StrBuf *out, const Point *steps, size_t n_steps, const Point *valid, size_t n_valid) {
  static const char *const blue = "#1f6fb4", *const orange = "#d1620a";
  strbuf_printf(out,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
                WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
  if (n_steps + n_valid == 0) {
    add_text(out, WIDTH / 2.0, HEIGHT / 2.0, "middle", "#444", "no step yet");
  } else {
    const Frame frame = frame_of(steps, n_steps, valid, n_valid);
    add_axes(out, &frame);
    if (n_steps) add_line(out, &frame, steps, n_steps, blue);
    if (n_valid) add_line(out, &frame, valid, n_valid, orange);
    for (size_t i = 0; i < n_valid; i++)
      strbuf_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2\" fill=\"%s\"/>\n", x_of(&frame, (double)valid[i].step),
                    y_of(&frame, valid[i].loss), orange);
    add_text(out, LEFT, TOP - 14, "start", blue, frame.is_log ? "loss (logarithmic)" : "loss");
    if (n_valid) add_text(out, LEFT + 130, TOP - 14, "start", orange, "validation");
  }
  strbuf_add(out, "</svg>\n");
}
