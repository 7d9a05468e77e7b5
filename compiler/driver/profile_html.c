/* A profile as a page: the modules as nested bars over the time of a run, and the steps below. */
#include "driver/profile.h"

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<style>\n"
    "body { font: 14px/1.4 sans-serif; margin: 2em; color: #222; background: #fff }\n"
    ".bars { position: relative; border: 1px solid #ccc; background: #fafafa; overflow: hidden }\n"
    ".bars div { position: absolute; box-sizing: border-box; height: 20px; border: 1px solid #fff; background: "
    "#9ec5e8;\n"
    "  font-size: 11px; overflow: hidden; white-space: nowrap; padding: 1px 3px }\n"
    ".bars div.step { background: #f0c890 }\n"
    ".bars div:hover { background: #ffe680 }\n"
    "table { border-collapse: collapse; margin-top: 1.5em } td, th { padding: 1px 10px; text-align: right }\n"
    "td.name, th.name { text-align: left; font-family: monospace } tr:nth-child(even) { background: #f4f4f4 }\n"
    "td.bar { width: 200px; text-align: left } td.bar span { display: block; height: 10px; background: #f0c890 }\n"
    "</style>\n";

enum { BAR_HEIGHT = 21 };

static void add_escaped(StrBuf *out, const char *text) {
  for (; *text; text++) {
    if (*text == '<')
      strbuf_add(out, "&lt;");
    else if (*text == '>')
      strbuf_add(out, "&gt;");
    else if (*text == '&')
      strbuf_add(out, "&amp;");
    else if (*text == '"')
      strbuf_add(out, "&quot;");
    else
      strbuf_add_char(out, *text);
  }
}

static double percent(const Profile *profile, double microseconds) {
  return profile->microseconds > 0 ? 100 * microseconds / profile->microseconds : 0;
}

static void add_bars(StrBuf *out, const Profile *profile) {
  ProfileSpans all = profile_spans(profile);
  strbuf_printf(out, "<div class=\"bars\" style=\"height:%upx\">\n", (all.depth + 1) * BAR_HEIGHT);
  for (size_t i = 0; i < all.spans.n; i++) {
    const ProfileSpan *span = &all.spans.items[i];
    double duration = span->end - span->begin;
    if (duration <= 0) continue;
    strbuf_printf(out, "<div%s style=\"left:%.4f%%;width:%.4f%%;top:%upx\" title=\"",
                  span->is_step ? " class=\"step\"" : "", percent(profile, span->begin), percent(profile, duration),
                  span->depth * BAR_HEIGHT);
    add_escaped(out, span->is_step ? span->name : *span->path ? span->path : profile->model);
    if (span->is_step && *span->path) {
      strbuf_add_char(out, ' ');
      add_escaped(out, span->path);
    }
    strbuf_printf(out, ": %.1f us, %.1f %%\">", duration, percent(profile, duration));
    add_escaped(out, span->name);
    strbuf_add(out, "</div>\n");
  }
  strbuf_add(out, "</div>\n");
}

static void add_steps(StrBuf *out, const Profile *profile) {
  strbuf_add(
      out,
      "<table><tr><th>us</th><th>%</th><th></th><th class=\"name\">step</th><th class=\"name\">module</th></tr>\n");
  for (size_t i = 0; i < profile->steps.n; i++) {
    const ProfiledStep *step = &profile->steps.items[i];
    double share = percent(profile, step->microseconds);
    strbuf_printf(
        out,
        "<tr><td>%.1f</td><td>%.1f</td><td class=\"bar\"><span style=\"width:%.2f%%\"></span></td><td class=\"name\">",
        step->microseconds, share, share);
    add_escaped(out, step->operation);
    strbuf_add(out, "</td><td class=\"name\">");
    add_escaped(out, step->path);
    strbuf_printf(out, "%s</td></tr>\n", step->prepare ? " (when sizes change)" : "");
  }
  strbuf_add(out, "</table>\n");
}

void profile_html(StrBuf *out, const Profile *profile) {
  strbuf_add(out, head);
  strbuf_add(out, "<title>");
  add_escaped(out, profile->model);
  strbuf_add(out, "</title></head><body>\n<h1>");
  add_escaped(out, profile->model);
  strbuf_printf(out, "</h1>\n<p>%.1f us in %zu steps, median of %zu runs, %s, %d thread%s</p>\n", profile->microseconds,
                profile->steps.n, profile->runs, profile->isa, profile->threads, profile->threads == 1 ? "" : "s");
  add_bars(out, profile);
  add_steps(out, profile);
  strbuf_add(out, "</body></html>\n");
}
