// Pages of `lms report --html` and `lms plan --html`: SVG, with nothing to fetch and no script.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lms::tool {

// What numbers along an axis count, and so what is round.
enum class Unit { Bytes, Seconds, Share, Times };
std::string label_of(Unit unit, double value);

struct Line {
    std::string name;
    std::vector<double> values;
    std::string colour;  // a variable of the page's
};

// Something at a place along the axis below.
struct Mark {
    double at;
    std::string name;
};

struct Chart {
    Unit across;
    double from, to;  // of the axis below, between which the values lie evenly
    Unit up;
    std::vector<Line> areas = {};  // one upon the other
    std::vector<Line> lines = {};
    std::vector<Mark> marks = {};
};
// "no data" where all is 0 or nothing is there.
std::string svg_of(const Chart& chart);

// Rows of things that lasted.
struct Slice {
    double begin, end;  // 0 to 1
    std::string name;
};
struct Row {
    std::string name;
    std::string colour;
    std::vector<Slice> slices;
};
std::string svg_of(const std::vector<Row>& rows);

// What adds up by call stack: each frame as wide as its share, above those that it called.
struct Stack {
    std::span<const std::string> frames;  // innermost first; whose they are must stay
    double amount;
};
std::string flame_graph(const std::vector<Stack>& stacks, Unit unit);

// As it may stand in a page.
std::string escaped(std::string_view text);
std::string legend_of(std::string_view name, std::string_view colour);

inline constexpr int kPageWidth = 860;

// A page's beginning, which "</body></html>" ends; and the variable of its colour of that number, below 7.
std::string page_head(std::string_view title);
std::string colour(std::size_t number);

}  // namespace lms::tool
