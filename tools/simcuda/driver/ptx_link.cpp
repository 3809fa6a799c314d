#include "tools/simcuda/driver/ptx_link.h"

#include <cctype>
#include <cstdlib>
#include <map>
#include <set>
#include <string_view>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/message.h"

namespace simcuda::driver {
namespace {

bool is_name(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%';
}

// The end of the name, comment, string or single character that starts at `at`.
std::size_t token_end(std::string_view text, std::size_t at) {
    auto after = [&](std::size_t found, std::size_t length) {
        return found == std::string_view::npos ? text.size() : found + length;
    };
    std::string_view rest = text.substr(at);
    if (rest.starts_with("//")) return after(text.find('\n', at), 1);
    if (rest.starts_with("/*")) return after(text.find("*/", at + 2), 2);
    if (rest.front() == '"') return after(text.find('"', at + 1), 1);
    std::size_t end = at + 1;
    if (is_name(rest.front()) || rest.front() == '.') {
        while (end < text.size() && is_name(text[end])) ++end;
    }
    return end;
}

bool is_comment(std::string_view token) {
    return token.starts_with("//") || token.starts_with("/*");
}
bool is_blank(std::string_view token) {
    return std::isspace(static_cast<unsigned char>(token.front()));
}

enum class Linkage { Local, Visible, Extern, Weak };

// A statement at the top level of a module: a directive, a variable, or a function with or without its body.
struct Statement {
    std::string_view text;
    std::string_view name;  // that it declares; empty: none
    Linkage linkage = Linkage::Local;
    bool function = false;
    bool shared =
        false;  // a variable in shared memory; an extern one is what a launch adds, and defined nowhere
    bool head = false;  // .version, .target, .address_size
};

// The name of a function comes before its parameters, that of a variable before its size, value or end.
class PtxReader {
  public:
    explicit PtxReader(std::string_view text) : text_(text) {}

    bool next(Statement& statement) {
        skip_blank();
        if (at_ >= text_.size()) return false;
        statement = {};
        const std::size_t begin = at_;
        const std::string_view first = peek();
        const bool to_line_end = first == ".file" || first == ".loc" || first == ".version" ||
                                 first == ".target" || first == ".address_size" || first == ".pragma";
        statement.head = first == ".version" || first == ".target" || first == ".address_size";
        if (to_line_end) {
            at_ = std::min(text_.find('\n', at_), text_.size());
        } else {
            read_declaration(statement);
        }
        statement.text = text_.substr(begin, at_ - begin);
        return true;
    }

  private:
    std::string_view peek() const { return text_.substr(at_, token_end(text_, at_) - at_); }

    void skip_blank() {
        while (at_ < text_.size() && (is_blank(peek()) || is_comment(peek()))) at_ += peek().size();
    }

    void read_declaration(Statement& statement) {
        int depth = 0;
        bool named = false;
        std::string_view last_name;
        while (at_ < text_.size()) {
            const std::string_view token = peek();
            at_ += token.size();
            if (is_comment(token) || is_blank(token)) continue;
            if (token == ".extern") statement.linkage = Linkage::Extern;
            if (token == ".visible") statement.linkage = Linkage::Visible;
            if (token == ".weak" || token == ".common") statement.linkage = Linkage::Weak;
            if (token == ".shared" && depth == 0) statement.shared = true;
            if (token == ".func" || token == ".entry") statement.function = true;
            const bool ends_name =
                token == "(" || token == "[" || token == "=" || token == ";" || token == "{";
            if (depth == 0 && ends_name && !named && !last_name.empty()) {
                statement.name = last_name;
                named = true;
            }
            if (depth == 0 && is_name(token.front()) &&
                !std::isdigit(static_cast<unsigned char>(token.front()))) {
                last_name = token;
            }
            if (token == "(" || token == "[" || token == "{") ++depth;
            if (token == ")" || token == "]" || token == "}") --depth;
            if (depth == 0 && (token == ";" || (token == "}" && statement.function))) return;
            if (depth == 0 && token == "}" && statement.text.empty() && last_name.empty())
                return;  // a section
        }
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

std::vector<Statement> statements_of(std::string_view text) {
    std::vector<Statement> statements;
    PtxReader reader(text);
    for (Statement statement; reader.next(statement);) statements.push_back(statement);
    return statements;
}

bool defines(const Statement& statement) {
    if (statement.name.empty() || statement.linkage == Linkage::Extern) return false;
    return !statement.function || statement.text.ends_with('}');
}

std::string with_names(std::string_view text, const std::map<std::string_view, std::string>& renamed) {
    std::string result;
    for (std::size_t at = 0; at < text.size();) {
        const std::string_view token = text.substr(at, token_end(text, at) - at);
        auto it = renamed.find(token);
        result += it == renamed.end() ? token : std::string_view(it->second);
        at += token.size();
    }
    return result;
}

// What the linked module is put together from. Variables come first: a name must be declared before its use.
struct Linked {
    std::string head, variables, functions;
    std::map<std::string, Linkage, std::less<>> defined;
};

void add_module(Linked& linked, std::string_view text, std::size_t number, bool has_head,
                const std::set<std::string>& everywhere) {
    const std::vector<Statement> statements = statements_of(text);
    std::map<std::string_view, std::string> renamed;
    for (const Statement& statement : statements) {
        if (statement.linkage == Linkage::Local && defines(statement) &&
            linked.defined.contains(statement.name)) {
            renamed[statement.name] = std::string(statement.name) + "$" + std::to_string(number);
        }
    }
    for (const Statement& statement : statements) {
        if (statement.head) {
            if (has_head) linked.head += std::string(statement.text) + '\n';
            continue;
        }
        if (statement.linkage == Linkage::Extern && !statement.function &&
            everywhere.contains(std::string(statement.name))) {
            continue;
        }
        if (defines(statement) && !renamed.contains(statement.name)) {
            auto [it, added] = linked.defined.emplace(statement.name, statement.linkage);
            if (!added && statement.linkage == Linkage::Weak) continue;
            if (!added) {
                message("two of the linked modules define %s", it->first.c_str());
                throw Failure{CUDA_ERROR_INVALID_SOURCE};
            }
        }
        std::string& into = statement.function ? linked.functions : linked.variables;
        into += with_names(statement.text, renamed) + '\n';
    }
}

// Names that the text of a statement uses beside the one it declares.
void add_uses(const Statement& statement, const std::set<std::string_view>& of, std::set<std::string>& used) {
    const std::string_view text = statement.text;
    for (std::size_t at = 0; at < text.size();) {
        const std::string_view token = text.substr(at, token_end(text, at) - at);
        if (token != statement.name && of.contains(token)) used.emplace(token);
        at += token.size();
    }
}

}  // namespace

std::set<std::string> definitions_of(const std::string& text) {
    std::set<std::string> names;
    for (const Statement& statement : statements_of(text))
        if (defines(statement) && statement.linkage != Linkage::Local) names.emplace(statement.name);
    return names;
}

std::set<std::string> undefined_in(const std::vector<std::string>& texts) {
    std::set<std::string> defined, undefined;
    for (const std::string& text : texts) defined.merge(definitions_of(text));
    for (const std::string& text : texts) {
        const std::vector<Statement> statements = statements_of(text);
        std::set<std::string_view> declared;
        for (const Statement& statement : statements)
            if (!statement.name.empty() && !defines(statement) && !statement.shared)
                declared.insert(statement.name);
        for (const Statement& statement : statements)
            if (defines(statement)) declared.erase(statement.name);
        for (const std::string& name : defined) declared.erase(name);
        for (const Statement& statement : statements)
            if (defines(statement)) add_uses(statement, declared, undefined);
    }
    return undefined;
}

// The one for the newest GPU: what it may use it may use linked, too.
std::size_t newest_of(const std::vector<std::string>& texts) {
    constexpr std::string_view kTarget = ".target sm_";
    std::size_t newest = 0;
    int target_of_newest = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
        const std::size_t at = texts[i].find(kTarget);
        const int target = at == texts[i].npos ? 0 : std::atoi(texts[i].c_str() + at + kTarget.size());
        if (target <= target_of_newest) continue;
        newest = i;
        target_of_newest = target;
    }
    return newest;
}

std::string link_ptx(const std::vector<std::string>& texts) {
    std::set<std::string> everywhere;
    for (const std::string& text : texts) everywhere.merge(definitions_of(text));
    Linked linked;
    const std::size_t newest = newest_of(texts);
    for (std::size_t i = 0; i < texts.size(); ++i) add_module(linked, texts[i], i, i == newest, everywhere);
    return linked.head + linked.variables + linked.functions;
}

std::shared_ptr<const ptx::Program> translate_ptx(const std::vector<std::string>& texts, JitLog* log) {
    std::string error;
    auto program = ptx::Program::translate(texts.size() == 1 ? texts.front() : link_ptx(texts), error);
    if (program) return program;
    message("PTX that cannot be translated: %s", error.c_str());
    if (log) log->write(error);
    throw Failure{CUDA_ERROR_INVALID_PTX};
}

}  // namespace simcuda::driver
