#include "tools/lms/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "shim/util/units.h"

namespace lms::tool {
namespace {

constexpr std::string_view kStyle = R"(<style>
:root{color-scheme:light dark;--0:#2a78b8;--1:#e08a2c;--2:#3a9a5c;--3:#b8407a;--4:#7b62b8;--5:#2aa0a8;--6:#999;--line:currentColor}
body{font:15px/1.5 system-ui,sans-serif;max-width:920px;margin:2em auto;padding:0 1em}
.s{overflow-x:auto}svg{display:block;width:100%;min-width:600px;height:auto;font-size:11px}svg text{fill:currentColor}svg .g{stroke:currentColor;opacity:.2}
table{border-collapse:collapse;width:100%;font-size:13px}td,th{padding:2px 8px;text-align:right;border-bottom:1px solid #8885}
td:last-child,th:last-child{text-align:left;word-break:break-word}.f td,.f th{text-align:left;vertical-align:top;width:50%;word-break:break-word}
.l{font-size:13px;word-break:break-word}.i{display:inline-block;margin-right:1em}.k{display:inline-block;width:.8em;height:.8em;margin:0 .4em 0 0}
.f0{fill:#e08a2c66}.f1{fill:#d9743066}.f2{fill:#e8a23a66}.f3{fill:#cf5f3a66}.f4{fill:#e0b04466}
</style>)";
constexpr int kHeight = 220, kLeft = 70, kRight = 16, kTop = 10, kBottom = 24;
constexpr double kWide = kPageWidth - kLeft - kRight, kHigh = kHeight - kTop - kBottom;
constexpr double kLetter = 6.2;  // how wide one is, about

// The least round step with which `span` has no more than so many.
double step_of(Unit unit, double span, int most_steps) {
    const double least = span / most_steps;
    if (unit == Unit::Bytes) return std::exp2(std::ceil(std::log2(std::max(least, 1.0))));
    const double ten = std::pow(10, std::floor(std::log10(least)));
    for (const double times : {1.0, 2.0, 5.0}) {
        if (ten * times >= least * 0.999) return ten * times;
    }
    return ten * 10;
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view text) {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>", x, y, anchor,
                       escaped(text));
}

// From the chart's values to places in its picture.
class Frame {
  public:
    Frame(const Chart& chart, double most)
        : chart_(chart), step_(step_of(chart.up, most, 5)), top_(step_ * std::ceil(most / step_ * 0.999)) {}

    double x(double at) const { return kLeft + kWide * (at - chart_.from) / (chart_.to - chart_.from); }
    double y(double value) const { return kTop + kHigh * (1 - value / top_); }

    std::string axes() const {
        std::string text;
        for (int tick = 0; tick <= 5; ++tick) {
            const double value = step_ * tick;
            if (value > top_ * 1.001) break;
            text += fmt::format("<line class=\"g\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>",
                                kLeft, kPageWidth - kRight, y(value));
            text += text_at(kLeft - 6, y(value) + 4, "end", label_of(chart_.up, value));
        }
        const double step = step_of(chart_.across, chart_.to - chart_.from, 8);
        for (int tick = 0; tick <= 8; ++tick) {
            const double at = (std::ceil(chart_.from / step) + tick) * step;
            if (at > chart_.to * 1.0001) break;
            text += fmt::format("<line class=\"g\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>",
                                x(at), kHeight - kBottom, kHeight - kBottom + 4);
            text += text_at(x(at), kHeight - 6, "middle", label_of(chart_.across, at));
        }
        for (const Mark& mark : chart_.marks) {
            text += fmt::format(
                "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"currentColor\" "
                "stroke-dasharray=\"3 3\"/>",
                x(mark.at), kTop, kHeight - kBottom);
            const bool left = x(mark.at) > kLeft + kWide / 2;
            text += text_at(x(mark.at) + (left ? -4 : 4), kTop + 10, left ? "end" : "start", mark.name);
        }
        return text;
    }

    std::string points(const std::vector<double>& values, bool back) const {
        std::string text;
        for (std::size_t i = 0; i < values.size(); ++i) {
            const std::size_t at = back ? values.size() - 1 - i : i;
            const double part =
                values.size() < 2 ? 0 : static_cast<double>(at) / static_cast<double>(values.size() - 1);
            text += fmt::format("{:.1f},{:.1f} ", kLeft + kWide * part, y(values[at]));
        }
        return text;
    }

  private:
    const Chart& chart_;
    double step_, top_;
};

double most_of(const Chart& chart, const std::vector<double>& sum) {
    double most = 0;
    for (const double value : sum) most = std::max(most, value);
    for (const Line& line : chart.lines) {
        for (const double value : line.values) most = std::max(most, value);
    }
    return most;
}

// A frame and those that it called.
struct Node {
    double amount = 0;
    std::map<std::string, Node> below;
};

// One that is too wide for a narrow page is moved sideways below it, at a size that can be read.
std::string picture(int height, std::string_view inside) {
    return fmt::format("<div class=\"s\"><svg viewBox=\"0 0 {} {}\" role=\"img\">{}</svg></div>\n",
                       kPageWidth, height, inside);
}

// Shades tell neighbours apart, and the same frame is the same everywhere.
int shade_of(std::string_view name) {
    return static_cast<int>(std::hash<std::string_view>()(name) % 5);
}

class Flames {
  public:
    Flames(const Node& root, Unit unit) : unit_(unit), all_(root.amount) { draw(root, "all", 0, 0); }

    std::string svg() const { return picture((deepest_ + 1) * kRow, text_); }

  private:
    static constexpr int kRow = 19;
    static constexpr double kLeast = 1.5;  // what is narrower is not seen

    void draw(const Node& node, const std::string& name, double x, int depth) {
        const double wide = kPageWidth * node.amount / all_;
        if (wide < kLeast) return;
        deepest_ = std::max(deepest_, depth);
        text_ += fmt::format(
            "<g><title>{}\n{}, {:.1f} %</title><rect class=\"f{}\" x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" "
            "height=\"{}\"/>",
            escaped(name), label_of(unit_, node.amount), 100 * node.amount / all_, shade_of(name), x,
            depth * kRow, std::max(wide - 1, 0.5), kRow - 1);
        const auto letters = static_cast<std::size_t>((wide - 6) / kLetter);
        if (wide > 40)
            text_ += text_at(x + 3, depth * kRow + 13, "start", std::string_view(name).substr(0, letters));
        text_ += "</g>";
        for (const auto& [below, child] : node.below) {
            draw(child, below, x, depth + 1);
            x += kPageWidth * child.amount / all_;
        }
    }

    Unit unit_;
    double all_;
    int deepest_ = 0;
    std::string text_;
};

}  // namespace

std::string page_head(std::string_view title) {
    return fmt::format(
        R"(<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>{0}</title>{1}</head><body><h1>{0}</h1>
)",
        escaped(title), kStyle);
}

std::string colour(std::size_t number) {
    return fmt::format("--{}", number);
}

std::string label_of(Unit unit, double value) {
    switch (unit) {
        case Unit::Bytes:
            return util::format_bytes(util::whole_bytes(value));
        case Unit::Seconds:
            return value == 0 || value >= 1 ? fmt::format("{:.3g} s", value)
                                            : fmt::format("{:.3g} ms", value * 1e3);
        case Unit::Share:
            return fmt::format("{:.0f} %", 100 * value);
        case Unit::Times:
            return fmt::format("{:.3g}x", value);
    }
    return {};
}

std::string escaped(std::string_view text) {
    std::string safe;
    for (const char c : text) {
        if (c == '<') {
            safe += "&lt;";
        } else if (c == '&') {
            safe += "&amp;";
        } else if (c == '"') {
            safe += "&quot;";
        } else {
            safe += c;
        }
    }
    return safe;
}

std::string legend_of(std::string_view name, std::string_view colour) {
    return fmt::format("<span class=\"i\"><span class=\"k\" style=\"background:var({})\"></span>{}</span> ",
                       colour, escaped(name));
}

std::string svg_of(const Chart& chart) {
    std::vector<double> sum;
    for (const Line& area : chart.areas) {
        sum.resize(area.values.size());
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += area.values[i];
    }
    const double most = most_of(chart, sum);
    if (most <= 0 || chart.to <= chart.from) return "<p>no data</p>\n";
    const Frame frame(chart, most);
    std::string legend = "<p class=\"l\">";
    for (const auto* lines : {&chart.areas, &chart.lines}) {
        for (const Line& line : *lines) legend += legend_of(line.name, line.colour);
    }
    std::string text = frame.axes();
    std::vector<double> below(sum.size());
    for (const Line& area : chart.areas) {
        std::vector<double> above = below;
        for (std::size_t i = 0; i < above.size(); ++i) above[i] += area.values[i];
        text += fmt::format("<polygon style=\"fill:var({})\" points=\"{}{}\"><title>{}</title></polygon>",
                            area.colour, frame.points(above, false), frame.points(below, true),
                            escaped(area.name));
        below = std::move(above);
    }
    for (const Line& line : chart.lines) {
        text += fmt::format(
            "<polyline fill=\"none\" stroke-width=\"1.5\" style=\"stroke:var({})\" "
            "points=\"{}\"><title>{}</title></polyline>",
            line.colour, frame.points(line.values, false), escaped(line.name));
    }
    return legend + "</p>" + picture(kHeight, text);
}

std::string svg_of(const std::vector<Row>& rows) {
    constexpr int kRow = 24;
    std::string text;
    int y = 0;
    for (const Row& row : rows) {
        text += text_at(kLeft - 6, y + 15, "end", row.name);
        for (const Slice& slice : row.slices) {
            text += fmt::format(
                "<rect style=\"fill:var({})\" x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" "
                "height=\"{}\"><title>{}</title></rect>",
                row.colour, kLeft + kWide * slice.begin, y + 3,
                std::max(kWide * (slice.end - slice.begin), 0.7), kRow - 6, escaped(slice.name));
        }
        y += kRow;
    }
    return picture(y, text);
}

std::string flame_graph(const std::vector<Stack>& stacks, Unit unit) {
    Node root;
    for (const Stack& stack : stacks) {
        Node* at = &root;
        at->amount += stack.amount;
        for (auto frame = stack.frames.rbegin(); frame != stack.frames.rend(); ++frame) {
            at = &at->below[*frame];
            at->amount += stack.amount;
        }
    }
    return root.amount <= 0 || root.below.empty() ? "<p>no data</p>\n" : Flames(root, unit).svg();
}

}  // namespace lms::tool
