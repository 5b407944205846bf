#include "scheduler/job_value.h"

#include <charconv>
#include <cmath>

#include "io/error.h"

namespace tilery {
namespace {

std::string Join(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

// "auto, fp32 (not supported yet: fp16)".
std::string Allowed(const JobKey& key, const std::string& beside = "") {
  std::string out = Join(SplitWords(key.words));
  if (!beside.empty()) out += (out.empty() ? "" : ", or ") + beside;
  if (key.later[0] != '\0' && !IsLater(key)) {
    out += " (not supported yet: " + Join(SplitWords(key.later)) + ")";
  }
  return out;
}

bool IsOneOf(const std::string& word, const char* words) {
  for (const std::string& known : SplitWords(words)) {
    if (word == known) return true;
  }
  return false;
}

// Refuses a word that is known but not built, and says whether it is one of `words`.
bool TakeWord(const JobValue& value, const JobKey& key) {
  if (value.kind != JobValue::Kind::kScalar) return false;
  if (!IsLater(key) && IsOneOf(value.text, key.later)) {
    RefuseValue(value, key.key,
                "'" + value.text + "' is not supported yet; allowed: " + Allowed(key));
  }
  return IsOneOf(value.text, key.words);
}

std::optional<int64_t> ParseInteger(const std::string& text) {
  int64_t n = 0;
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || begin == end) return std::nullopt;
  return n;
}

std::optional<double> ParseNumber(const std::string& text) {
  double x = 0;
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), x);
  if (error != std::errc() || end != text.data() + text.size() || begin == end ||
      !std::isfinite(x)) {
    return std::nullopt;
  }
  return x;
}

// The value itself or, of a list, its items.
std::vector<const JobValue*> OneOrMany(const JobValue& value, const JobKey& key) {
  std::vector<const JobValue*> out;
  if (value.kind == JobValue::Kind::kScalar) out.push_back(&value);
  if (value.kind == JobValue::Kind::kList) {
    for (const JobValue& item : value.items) out.push_back(&item);
  }
  if (out.empty())
    RefuseValue(value, key.key, "'" + Shown(value) + "' is no value or list of values");
  return out;
}

std::string LeastInteger(const JobKey& key) {
  return "an integer of at least " + std::to_string(key.least);
}

}  // namespace

void RefuseValue(const JobValue& value, const std::string& key, const std::string& what) {
  throw Error(Fault::kUsage, value.where + ": " + key + ": " + what);
}

std::string Shown(const JobValue& value) {
  switch (value.kind) {
    case JobValue::Kind::kNull:
      return "nothing";
    case JobValue::Kind::kScalar:
      return Printable(value.text, 120);
    case JobValue::Kind::kList: {
      std::string out = "[";
      for (const JobValue& item : value.items) {
        if (out.size() > 120) return out + ", ...]";
        out += (out.size() > 1 ? ", " : "") + Shown(item);
      }
      return out + "]";
    }
    case JobValue::Kind::kMap: {
      std::string out = "{";
      for (const auto& [name, child] : value.entries) {
        if (out.size() > 120) return out + ", ...}";
        out += (out.size() > 1 ? ", " : "") + Printable(name, 60) + ": " + Shown(child);
      }
      return out + "}";
    }
  }
  return "";
}

std::string AsText(const JobValue& value, const JobKey& key) {
  if (value.kind != JobValue::Kind::kScalar || value.text.empty()) {
    RefuseValue(value, key.key, "must be one text, not '" + Shown(value) + "'");
  }
  return value.text;
}

std::vector<std::string> AsTexts(const JobValue& value, const JobKey& key) {
  std::vector<std::string> out;
  for (const JobValue* item : OneOrMany(value, key)) out.push_back(AsText(*item, key));
  return out;
}

std::string AsWord(const JobValue& value, const JobKey& key) {
  if (TakeWord(value, key)) return value.text;
  std::vector<std::string> all = SplitWords(key.words);
  for (const std::string& later : SplitWords(key.later)) all.push_back(later);
  const std::string near =
      value.kind == JobValue::Kind::kScalar ? NearestWord(value.text, all) : "";
  RefuseValue(value, key.key,
              "'" + Shown(value) + "' is not allowed; allowed: " + Allowed(key) +
                  (near.empty() ? "" : "; the nearest is '" + near + "'"));
}

std::optional<int64_t> AsInteger(const JobValue& value, const JobKey& key) {
  if (TakeWord(value, key)) return std::nullopt;
  const auto n = value.kind == JobValue::Kind::kScalar ? ParseInteger(value.text) : std::nullopt;
  if (!n || *n < key.least) {
    RefuseValue(
        value, key.key,
        "'" + Shown(value) + "' is not allowed; allowed: " + Allowed(key, LeastInteger(key)));
  }
  return n;
}

std::vector<int64_t> AsIntegers(const JobValue& value, const JobKey& key) {
  std::vector<int64_t> out;
  for (const JobValue* item : OneOrMany(value, key)) {
    const auto n = item->kind == JobValue::Kind::kScalar ? ParseInteger(item->text) : std::nullopt;
    if (!n || *n < key.least) {
      RefuseValue(*item, key.key,
                  "'" + Shown(*item) + "' is not allowed; allowed: " + LeastInteger(key) +
                      ", or a list with one per axis");
    }
    out.push_back(*n);
  }
  return out;
}

std::vector<double> AsNumbers(const JobValue& value, const JobKey& key) {
  std::vector<double> out;
  for (const JobValue* item : OneOrMany(value, key)) {
    const auto x = item->kind == JobValue::Kind::kScalar ? ParseNumber(item->text) : std::nullopt;
    if (!x) RefuseValue(*item, key.key, "'" + Shown(*item) + "' is no finite number");
    out.push_back(*x);
  }
  return out;
}

std::array<double, 2> AsRange(const JobValue& value, const JobKey& key) {
  if (TakeWord(value, key)) return {};
  std::vector<double> ends;
  if (value.kind == JobValue::Kind::kList) ends = AsNumbers(value, key);
  if (ends.size() != 2 || !(ends[0] < ends[1])) {
    RefuseValue(value, key.key,
                "'" + Shown(value) + "' is not allowed; allowed: " +
                    Allowed(key, "two numbers [low, high] with low < high"));
  }
  return {ends[0], ends[1]};
}

std::vector<Rational> AsScale(const JobValue& value, const JobKey& key) {
  std::vector<Rational> out;
  for (const JobValue* item : OneOrMany(value, key)) {
    try {
      if (item->kind != JobValue::Kind::kScalar) throw Error(Fault::kUsage, "");
      // JSON writers like to make 2 a 2.0.
      const std::string& text = item->text;
      out.push_back(Rational::Parse(text.ends_with(".0") ? text.substr(0, text.size() - 2) : text));
    } catch (const Error&) {
      RefuseValue(*item, key.key,
                  "'" + Shown(*item) +
                      "' is not allowed; allowed: an integer of at least 1, "
                      "\"p/q\", or a list with one per axis");
    }
  }
  return out;
}

int64_t AsMemory(const JobValue& value, const JobKey& key) {
  struct Suffix {
    const char* name;
    int shift;
  };
  static constexpr Suffix kSuffixes[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
  std::optional<double> bytes;
  if (value.kind == JobValue::Kind::kScalar) {
    std::string digits = value.text;
    int shift = 0;
    for (const Suffix& suffix : kSuffixes) {
      if (!digits.ends_with(suffix.name)) continue;
      digits.resize(digits.size() - 3);
      while (digits.ends_with(' ')) digits.pop_back();
      shift = suffix.shift;
      break;
    }
    if (shift == 0) {
      if (const auto n = ParseInteger(digits)) bytes = static_cast<double>(*n);
    } else if (const auto n = ParseNumber(digits)) {
      bytes = std::ldexp(*n, shift);
    }
  }
  if (!bytes || *bytes < static_cast<double>(key.least) || *bytes > 0x1p60) {
    RefuseValue(value, key.key,
                "'" + Shown(value) + "' is not allowed; allowed: at least " +
                    std::to_string(key.least) +
                    " bytes, as an integer or with KiB, MiB, GiB or TiB");
  }
  return static_cast<int64_t>(*bytes);
}

Extent AsExtent(const JobValue& value, const JobKey& key) {
  Extent extent;
  if (TakeWord(value, key)) return extent;
  const bool percent_allowed = std::string_view(key.key) == "tiling.overlap";
  const auto refuse = [&](const JobValue& item) {
    RefuseValue(
        item, key.key,
        "'" + Shown(item) + "' is not allowed; allowed: " +
            Allowed(key, "an integer of at least " + std::to_string(key.least) +
                             (percent_allowed ? ", a share of the tile such as \"25%\"" : "") +
                             ", or a list with one per axis"));
  };
  for (const JobValue* item : OneOrMany(value, key)) {
    if (item->kind != JobValue::Kind::kScalar) refuse(*item);
    const bool percent = item->text.ends_with('%');
    const Extent::Kind kind = percent ? Extent::Kind::kPercent : Extent::Kind::kVoxels;
    if (!extent.values.empty() && extent.kind != kind) {
      RefuseValue(*item, key.key, "'" + Shown(value) + "' mixes voxels and percentages");
    }
    extent.kind = kind;
    if (percent) {
      const auto share = ParseNumber(item->text.substr(0, item->text.size() - 1));
      if (!percent_allowed || !share || *share < 0 || *share >= 100) refuse(*item);
      extent.values.push_back(*share);
    } else {
      const auto n = ParseInteger(item->text);
      if (!n || *n < key.least || *n > (int64_t{1} << 40)) refuse(*item);
      extent.values.push_back(static_cast<double>(*n));
    }
  }
  return extent;
}

Share AsShare(const JobValue& value, const JobKey& key) {
  Share share;
  if (value.kind == JobValue::Kind::kScalar) {
    if (value.text.ends_with('%')) {
      const auto percent = ParseNumber(value.text.substr(0, value.text.size() - 1));
      if (percent && *percent >= 0 && *percent <= 100) {
        share.share = *percent / 100;
        return share;
      }
    } else if (const auto n = ParseInteger(value.text); n && *n >= 0) {
      share.count = *n;
      return share;
    }
  }
  RefuseValue(value, key.key,
              "'" + Shown(value) + "' is not allowed; allowed: a count, or \"0%\" to \"100%\"");
}

}  // namespace tilery
