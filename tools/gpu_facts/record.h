// What a probe found, handed to the parent process line by line, so that a fault loses nothing found before
// it.
#pragma once

#include <string>
#include <vector>

namespace facts {

// Times of repeated calls, or rates: reported as least, median and how many.
class Samples {
  public:
    void add(double value) { values_.push_back(value); }
    bool empty() const { return values_.empty(); }
    std::size_t count() const { return values_.size(); }
    double least() const;   // not of empty ones
    double median() const;  // not of empty ones

  private:
    std::vector<double> values_;
};

// Each call writes one line of JSON to stdout. Names are paths, "device/2 MiB/map".
class Record {
  public:
    void number(const std::string& name, double value, const std::string& unit);
    void samples(const std::string& name, const Samples& samples, const std::string& unit);
    void text(const std::string& name, const std::string& value);
    void answer(const std::string& name, bool value) { text(name, value ? "yes" : "no"); }
};

}  // namespace facts
