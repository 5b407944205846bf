#include "scheduler/batch_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "io/error.h"

namespace tilery {
namespace {

constexpr std::string_view kOpen = "{{", kClose = "}}";

bool IsPlain(unsigned char c) {
  return std::isalnum(c) != 0 ||
         std::string_view("_-./:,=@%+").find(static_cast<char>(c)) != std::string_view::npos;
}

// A value in a line that the queue reads (#SBATCH and the like): those know double quotes.
std::string DirectiveWord(const std::string& text) {
  if (!text.empty() && std::all_of(text.begin(), text.end(), IsPlain)) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

// Queues allow few characters in names of jobs.
std::string QueueName(const std::string& name) {
  std::string out;
  for (const unsigned char c : name)
    out += std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' ? static_cast<char>(c) : '_';
  return out.empty() || std::isalpha(static_cast<unsigned char>(out[0])) == 0 ? "tilery-" + out
                                                                              : out;
}

std::optional<std::string> Given(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return DirectiveWord(text);
}

std::optional<std::string> Given(const std::optional<int>& number) {
  if (!number) return std::nullopt;
  return std::to_string(*number);
}

// Of each node, behind their number: ":ncpus=8:ngpus=2:mem=64gb".
std::string PbsResources(const BatchRequest& request) {
  std::string out;
  if (request.cpus) out += fmt::format(":ncpus={}", *request.cpus);
  if (request.gpus.value_or(0) > 0) out += fmt::format(":ngpus={}", *request.gpus);
  std::string memory = request.memory;
  for (char& c : memory) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (!memory.empty()) out += fmt::format(":mem={}b", memory);
  return out;
}

}  // namespace

std::string FillTemplate(const std::string& text, const std::string& name,
                         const TemplateWords& words) {
  std::string out;
  int number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    std::string filled;
    bool keep = true;
    size_t at = 0;
    for (size_t open; (open = line.find(kOpen, at)) != std::string::npos;) {
      const size_t close = line.find(kClose, open);
      if (close == std::string::npos) break;
      const std::string word = line.substr(open + 2, close - open - 2);
      const auto found = words.find(word);
      if (found == words.end()) {
        std::string known;
        for (const auto& [each, value] : words) known += (known.empty() ? "" : " ") + each;
        throw Error(Fault::kUsage,
                    fmt::format("{}:{}: {{{{{}}}}} is no word of a template; those "
                                "there are: {}",
                                Printable(name), number, Printable(word, 80), known));
      }
      filled += line.substr(at, open - at);
      filled += found->second.value_or("");
      keep = keep && found->second.has_value();
      at = close + 2;
    }
    if (keep) out += filled + line.substr(at) + "\n";
  }
  return out;
}

std::string ShellWord(const std::string& text) {
  if (!text.empty() && text[0] != '=' && std::all_of(text.begin(), text.end(), IsPlain))
    return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

std::string ShellWords(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + ShellWord(word);
  return out;
}

std::string BatchScript(const std::string& text, const std::string& name, const BatchJob& job,
                        const BatchRequest& request) {
  const bool whole_nodes = !request.cpus && !request.workers;
  std::vector<std::string> worker = job.worker;
  worker.insert(worker.end(), {"--wait", request.workers ? "120" : "600"});
  std::string lines;
  for (const std::string& line : request.lines) lines += (lines.empty() ? "" : "\n") + line;

  TemplateWords words;
  words["TEMPLATE"] = std::nullopt;  // for what concerns the template alone
  words["NAME"] = QueueName(job.name);
  words["LOG"] = DirectiveWord(job.log.string());
  words["FOLDER"] = DirectiveWord(job.folder.string());
  words["SHELL_FOLDER"] = ShellWord(job.folder.string());
  words["WORK"] = ShellWord(job.work.string());
  words["SCRIPT"] = ShellWord(job.script.string());
  words["RUN"] = ShellWords(job.run);
  words["WORKER"] = ShellWords(worker);
  words["STATUS"] = ShellWords(job.status);
  words["ENVIRONMENT"] = lines.empty() ? std::nullopt : std::optional(lines);
  words["ACCEPTED"] = job.failed_is_fine ? std::optional<std::string>("3") : std::nullopt;
  words["NODES"] = std::to_string(request.nodes);
  words["LAST_TASK"] = std::to_string(request.workers.value_or(1) - 1);
  words["CPUS"] = Given(request.cpus);
  words["GPUS"] = request.gpus.value_or(0) > 0 ? Given(request.gpus) : std::nullopt;
  words["EXCLUSIVE"] = whole_nodes ? std::optional<std::string>("") : std::nullopt;
  words["MEMORY"] = Given(request.memory);
  // To Slurm, 0 is all memory of a node.
  if (!words["MEMORY"] && whole_nodes && request.queue == "slurm") words["MEMORY"] = "0";
  words["RESOURCES"] = PbsResources(request);
  words["ACCOUNT"] = Given(request.account);
  words["PARTITION"] = Given(request.partition);
  words["GRACE"] = std::to_string(request.grace_s);
  words["GRACE_MINUTES"] = std::to_string((request.grace_s + 59) / 60);
  for (const char* word : {"MINUTES", "CLOCK", "SECONDS_TO_NOTICE"}) words[word] = std::nullopt;
  if (request.minutes) {
    words["MINUTES"] = std::to_string(*request.minutes);
    words["CLOCK"] = fmt::format("{:02}:{:02}:00", *request.minutes / 60, *request.minutes % 60);
    words["SECONDS_TO_NOTICE"] = std::to_string(*request.minutes * 60 - request.grace_s);
  }
  return FillTemplate(text, name, words);
}

}  // namespace tilery
