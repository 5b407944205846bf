#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "io/error.h"
#include "pipeline/profile.h"
#include "scheduler/report.h"

namespace tilery {
namespace {

constexpr const char* kColours[kStages] = {"#4c78a8", "#72b7b2", "#9ecae9", "#e45756",
                                           "#f58518", "#eeca3b", "#54a24b", "#b279a2"};

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--line:#8884;--dim:#777}
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:64rem;padding:0 1rem}
h1{font-size:1.4rem;margin:0}h2{font-size:1.05rem;margin:2rem 0 .5rem}
.dim{color:var(--dim)}.bad{color:#c33}.good{color:#2a7}
.cards{display:flex;flex-wrap:wrap;gap:.75rem;margin:1rem 0}
.card{border:1px solid var(--line);border-radius:.5rem;padding:.6rem .9rem;min-width:7rem}
.card b{display:block;font-size:1.25rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:.25rem .6rem;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left}td.words,th.words{text-align:left;overflow-wrap:anywhere}
.bar{display:flex;height:.9rem;border-radius:.25rem;overflow:hidden;background:var(--line)}
.bar i{display:block;height:100%}.key i{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 1em}
svg{width:100%;height:auto;background:#8881;border-radius:.3rem}
)";

std::string Escape(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string Bytes(double bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  int k = 0;
  for (; bytes >= 1000 && k < 4; ++k) bytes /= 1000;
  return k == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[k]);
}

std::string Card(const std::string& value, const std::string& label, const char* kind = "") {
  return fmt::format("<div class=card><b class='{}'>{}</b><span class=dim>{}</span></div>\n", kind,
                     Escape(value), Escape(label));
}

std::string StageKey() {
  std::string out = "<p class='key dim'>";
  for (int k = 0; k < kStages; ++k)
    out += fmt::format("<i style='background:{}'></i>{}", kColours[k],
                       StageName(static_cast<Stage>(k)));
  return out + "</p>\n";
}

const Json& StageOf(const Json& worker, int stage) {
  static const Json kNone = {{"s", 0.0}, {"calls", 0}, {"bytes", 0}};
  const Json& stages = worker.at("stages");
  const auto found = stages.find(StageName(static_cast<Stage>(stage)));
  return found == stages.end() ? kNone : *found;
}

std::string WorkerTable(const Json& workers) {
  std::string out =
      "<table><tr><th>worker<th>host<th>device<th>tiles<th>units<th>busy<th>idle<th>host memory"
      "<th style='width:28%'>stages, share of thread time</tr>\n";
  for (const Json& worker : workers) {
    double sum = 0;
    for (int k = 0; k < kStages; ++k) sum += StageOf(worker, k).at("s").get<double>();
    std::string bar;
    for (int k = 0; k < kStages && sum > 0; ++k)
      bar +=
          fmt::format("<i style='width:{:.2f}%;background:{}' title='{} {:.2f} s'></i>",
                      100 * StageOf(worker, k).at("s").get<double>() / sum, kColours[k],
                      StageName(static_cast<Stage>(k)), StageOf(worker, k).at("s").get<double>());
    out += fmt::format(
        "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{:.1f} s<td>{:.1f} s<td>{}<td><div "
        "class=bar>{}</div>"
        "</tr>\n",
        Escape(worker.at("id")), Escape(worker.at("host")), Escape(worker.at("device")),
        worker.at("tiles").get<int64_t>(), worker.at("units").get<int64_t>(),
        worker.at("busy_s").get<double>(), worker.at("idle_s").get<double>(),
        Bytes(worker.at("peak_host_bytes").get<double>()), bar);
  }
  return out + "</table>\n" + StageKey();
}

std::string StageTable(const Json& workers, double wall) {
  std::string out =
      "<table><tr><th>stage<th>thread time<th>of wall time<th>under the model<th>calls<th>per call"
      "<th>bytes<th>rate while at work</tr>\n";
  for (int k = 0; k < kStages; ++k) {
    double s = 0, under = 0, bytes = 0;
    int64_t calls = 0;
    for (const Json& worker : workers) {
      s += StageOf(worker, k).at("s").get<double>();
      under += StageOf(worker, k).value("under_model_s", 0.0);
      bytes += StageOf(worker, k).at("bytes").get<double>();
      calls += StageOf(worker, k).at("calls").get<int64_t>();
    }
    const bool other = static_cast<Stage>(k) != Stage::kCompute && s > 0;
    out += fmt::format("<tr><td>{}<td>{:.2f} s<td>{:.1f} %<td>{}<td>{}<td>{}<td>{}<td>{}</tr>\n",
                       StageName(static_cast<Stage>(k)), s, wall > 0 ? 100 * s / wall : 0,
                       other ? fmt::format("{:.0f} %", 100 * under / s) : "-", calls,
                       calls > 0 ? fmt::format("{:.2f} ms", 1000 * s / calls) : "-",
                       bytes > 0 ? Bytes(bytes) : "-",
                       bytes > 0 && s > 0 ? Bytes(bytes / s) + "/s" : "-");
  }
  return out + "</table>\n";
}

// Whether the model ran, and what it waited for if it did not.
std::string ModelTable(const Json& workers) {
  std::string out =
      "<table><tr><th><th colspan=6>model at work, or waiting for<th colspan=4>units, mean "
      "(most)</tr>\n<tr><th>worker<th>at work<th>first run<th>leases<th>reading<th>engine"
      "<th>writing<th>waiting<th>reading<th>in the engine<th>writing</tr>\n";
  for (const Json& worker : workers) {
    const Json& idle = worker.at("model_idle_s");
    const Json& queues = worker.at("queues");
    double all = worker.at("model_s").get<double>();
    for (const Json& s : idle) all += s.is_number() ? s.get<double>() : 0;
    const auto share = [&](double s) {
      return all > 0 ? fmt::format("<td>{:.1f} %", 100 * s / all) : std::string("<td>-");
    };
    out += "<tr><td>" + Escape(worker.at("id")) + share(worker.at("model_s").get<double>());
    for (int k = 0; k < kIdleCauses; ++k)
      out += share(idle.value(IdleCauseName(static_cast<IdleCause>(k)), 0.0));
    for (int k = 0; k < kQueues; ++k) {
      const Json queue = queues.value(QueueName(k), Json::object());
      out += fmt::format("<td>{:.1f}&nbsp;({})", queue.value("mean", 0.0),
                         queue.value("most", int64_t{0}));
    }
    out += "</tr>\n";
  }
  return out + "</table>\n";
}

// All workers as one device; nothing for one worker alone, of which the other tables tell all.
std::string TogetherPart(const Json& together) {
  if (together.at("workers").get<int64_t>() < 2 || together.at("efficiency").is_null()) return "";
  std::string out = "<h2>Together</h2>\n<div class=cards>\n";
  out += Card(fmt::format("{:.2f} of {}", together.at("worth").get<double>(),
                          together.at("workers").get<int64_t>()),
              "devices' worth of work");
  out += Card(fmt::format("{:.1f} %", 100 * together.at("efficiency").get<double>()),
              "of the time at work");
  out += Card(fmt::format("{:.1f} %", 100 * together.at("imbalance").get<double>()), "imbalance");
  out += Card(fmt::format("{:.2f} s", together.at("tail_s").get<double>()), "tail");
  out += Card(Bytes(together.at("read_bytes").get<double>()), "read from disk");
  out += Card(Bytes(together.at("written_bytes").get<double>()), "written to disk");
  out += Card(Bytes(together.at("control_in_bytes").get<double>() +
                    together.at("control_out_bytes").get<double>()),
              "control messages");
  out += Card(Bytes(together.at("model_read_bytes").get<double>()), "model files read");
  if (const double passed = together.at("model_broadcast_bytes"); passed > 0)
    out += Card(Bytes(passed), "model files passed on");
  out += "</div>\n";
  for (const Json& one : together.at("stragglers")) {
    out += fmt::format("<p class=bad>{} on {} runs {:.2f} tiles/s, the median is {:.2f}.</p>\n",
                       Escape(one.at("worker")), Escape(one.at("host")),
                       one.at("tiles_per_s").get<double>(), one.at("median").get<double>());
  }
  out +=
      "<table><tr><th>host<th>workers<th>tiles<th>model at work<th>there<th>read<th>written</tr>\n";
  for (const Json& host : together.at("hosts")) {
    out += fmt::format("<tr><td>{}<td>{}<td>{}<td>{:.1f} s<td>{:.1f} s<td>{}<td>{}</tr>\n",
                       Escape(host.at("name")), host.at("workers").get<int64_t>(),
                       host.at("tiles").get<int64_t>(), host.at("model_s").get<double>(),
                       host.at("there_s").get<double>(), Bytes(host.at("read_bytes").get<double>()),
                       Bytes(host.at("written_bytes").get<double>()));
  }
  return out + "</table>\n";
}

// One row per worker and thread, the newest events; too many would make the page slow, so bars that
// would be narrower than a quarter pixel are left out.
std::string Timeline(const RunResult& result) {
  std::map<std::pair<size_t, int64_t>, std::vector<const TraceRow*>> rows;
  int64_t end = 1;
  std::map<std::string, int> colour;
  for (int k = 0; k < kStages; ++k) colour[StageName(static_cast<Stage>(k))] = k;
  for (size_t k = 0; k < result.workers.size(); ++k) {
    for (const TraceRow& event : result.workers[k].trace) {
      rows[{k, event.thread}].push_back(&event);
      end = std::max(end, event.begin_us + event.duration_us);
    }
  }
  if (rows.empty()) return "<p class=dim>No work was done in this run.</p>\n";
  constexpr double kWidth = 1000, kRow = 14;
  std::string bars;
  double y = 0;
  std::optional<size_t> last;
  for (const auto& [row, events] : rows) {
    if (row.first != last) {
      const WorkerReport& worker = result.workers[row.first];
      bars += fmt::format("<text x='2' y='{}' font-size='10' fill='gray'>{} on {}</text>\n", y + 10,
                          Escape(Printable(worker.id)), Escape(Printable(worker.host)));
      y += kRow;
      last = row.first;
    }
    for (const TraceRow* event : events) {
      const double x = kWidth * static_cast<double>(event->begin_us) / static_cast<double>(end);
      const double w = kWidth * static_cast<double>(event->duration_us) / static_cast<double>(end);
      if (w < 0.25) continue;
      const auto found = colour.find(event->name);
      bars += fmt::format("<rect x='{:.2f}' y='{}' width='{:.2f}' height='{}' fill='{}'/>\n", x, y,
                          w, kRow - 3, found == colour.end() ? "#999" : kColours[found->second]);
    }
    y += kRow;
  }
  return fmt::format(
      "<svg viewBox='0 0 {} {}' role='img' aria-label='timeline'>{}</svg>\n"
      "<p class=dim>0 to {:.2f} s, one row per thread; the whole of it is in trace.json "
      "(chrome://tracing, ui.perfetto.dev).</p>\n",
      kWidth, y + 2, bars, end / 1e6);
}

// Of a GPU: how the model runs, and how far from fp32.
std::string Form(const Json& job) {
  const Json& tuning = job.at("tuning");
  if (!tuning.is_object()) return "";
  std::string out = " &middot; " + Escape(job.at("layout")) +
                    (job.at("compiled").get<bool>() ? " &middot; compiled" : "") + " &middot; " +
                    Escape(tuning.value("how", std::string()));
  const std::string slots = tuning.value("slots", std::string("all"));
  if (slots != "all") out += " &middot; slots " + Escape(slots) + " of a batch";
  const Json error = tuning.value("error_against_fp32", Json::object());
  if (error.value("tiles", int64_t{0}) > 0)
    out +=
        fmt::format(" &middot; off from fp32 by at most {:.2g}, mean {:.2g}, of {:.3g} to {:.3g}",
                    error.value("max", 0.0), error.value("mean", 0.0), error.value("lowest", 0.0),
                    error.value("highest", 0.0));
  return out;
}

std::string FailureTable(const Json& failures) {
  if (failures.empty()) return "<p class=good>None.</p>\n";
  std::string out =
      "<table><tr><th class=words>item<th class=words>stage<th class=words>reason</tr>\n";
  size_t shown = 0;
  for (const Json& failure : failures) {
    if (++shown > 1000) break;
    out += fmt::format("<tr><td class=words>{}<td class=words>{}<td class=words>{}</tr>\n",
                       Escape(failure.at("item")), Escape(failure.at("stage")),
                       Escape(failure.at("reason")));
  }
  if (failures.size() > shown)
    out +=
        fmt::format("<tr><td colspan=3>and {} more in profile.json</tr>\n", failures.size() - 1000);
  return out + "</table>\n";
}

}  // namespace

std::string ReportHtml(const Json& profile, const RunResult& result, const Json& summary) {
  const Json& job = profile.at("job");
  const std::string status = summary.at("status");
  const double wall = profile.at("wall_s");
  std::string warnings;
  for (const Json& warning : job.at("warnings"))
    warnings += "<p class=bad>" + Escape(warning) + "</p>\n";
  std::string out = fmt::format(
      "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport "
      "content='width=device-width'><title>Tilery: {}</title><style>{}</style>\n"
      "<h1>{} <span class={}>{}</span></h1>\n<p class=dim>{} &middot; {} &middot; {} &middot; "
      "batch "
      "{}{} &middot; {} &middot; Torch {}</p>\n{}",
      Escape(job.at("name")), kStyle, Escape(job.at("name")), status == "done" ? "good" : "bad",
      status, Escape(job.at("model")), Escape(job.at("tiling")), Escape(job.at("precision")),
      job.at("batch").get<int64_t>(), Form(job), Escape(job.at("device_kind")),
      Escape(job.at("torch")), warnings);
  out += "<div class=cards>\n";
  out += Card(fmt::format("{:.2f} s", wall), "wall time");
  out += Card(fmt::format("{}", summary.at("tiles_inferred").get<int64_t>()), "tiles inferred");
  out += Card(fmt::format("{:.2f}", profile.at("tiles_per_s").get<double>()), "tiles per second");
  out += Card(fmt::format("{}", summary.at("items_done").get<int64_t>()), "items done");
  out += Card(fmt::format("{}", summary.at("items_unchanged").get<int64_t>()), "unchanged");
  out += Card(fmt::format("{}", summary.at("items_failed").get<int64_t>()), "failed",
              summary.at("items_failed").get<int64_t>() > 0 ? "bad" : "");
  out += Card(fmt::format("{}", summary.at("tiles_repeated").get<int64_t>()), "tiles repeated");
  if (const int64_t careful = profile.at("tiles_careful"); careful > 0)
    out += Card(fmt::format("{}", careful), "tiles once more in fp32", "bad");
  out += Card(fmt::format("{:.2f}", job.at("redundancy").get<double>()), "voxels run / voxels");
  out += Card(profile.at("bound_by"), "bound by");
  out += "</div>\n<h2>Workers</h2>\n" + WorkerTable(profile.at("workers"));
  out += TogetherPart(profile.at("together"));
  out += "<h2>Model</h2>\n" + ModelTable(profile.at("workers"));
  out += "<h2>Stages</h2>\n" + StageTable(profile.at("workers"), wall);
  out += "<h2>Timeline</h2>\n" + Timeline(result);
  out += "<h2>Failures</h2>\n" + FailureTable(profile.at("failures"));
  return out + "</html>\n";
}

}  // namespace tilery
