#include "scheduler/status.h"

#include "io/error.h"
#include "scheduler/ledger.h"

namespace tilery {
namespace {

std::filesystem::path StatusFile(const std::filesystem::path& work) { return work / "status.json"; }

bool Over(const std::string& state) { return state != "running" && state != "draining"; }

}  // namespace

Json StatusJson(const Progress& p) {
  Json workers = Json::array();
  if (!Over(p.state)) {
    for (const WorkerReport& w : p.workers) {
      workers.push_back({{"id", w.id},
                         {"host", w.host},
                         {"pid", w.pid},
                         {"device", w.device},
                         {"state", w.state}});
    }
  }
  Json json = {
      {"state", p.state},
      {"units",
       {{"waiting", p.waiting}, {"leased", p.leased}, {"done", p.done}, {"failed", p.failed}}},
      {"workers", std::move(workers)},
      {"tiles_done", p.tiles_done},
      {"tiles", p.tiles},
      {"eta_s", nullptr}};
  if (p.eta_s >= 0) json["eta_s"] = p.eta_s;
  return json;
}

bool WriteStatus(const std::filesystem::path& work, const Progress& progress) {
  // A reader must never see half of it; losing the newest one in a power cut does no harm.
  const std::string text =
      StatusJson(progress).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  try {
    WriteFileAtomically(StatusFile(work), text, Durability::kRename);
    return true;
  } catch (const Error&) {
    return false;
  }
}

Json ReadStatus(const std::filesystem::path& work) {
  const std::filesystem::path file = StatusFile(work);
  // The lock is looked at first: a run that ends in between has then written its last state
  // already.
  const bool held = WorkLock::Held(work);
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    throw Error(Fault::kUsage, "no run in " + Printable(work.string()) +
                                   " has had a plan yet (there is no " + Printable(file.string()) +
                                   "): start one with `tilery run`");
  }
  Json json;
  try {
    json = Json::parse(ReadSmallFile(file));
    if (!Over(json.at("state").get<std::string>()) && !held) {
      json["state"] = "stopped";
      json["workers"] = Json::array();
      json["eta_s"] = nullptr;
    }
  } catch (const Json::exception& error) {
    throw Error(Fault::kUsage, Printable(file.string()) + " is damaged: " + error.what());
  }
  return json;
}

}  // namespace tilery
