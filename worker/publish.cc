#include "worker/publish.h"

#include "worker/fault_points.h"

namespace tilery {
namespace {

[[noreturn]] void ThrowChanged(const std::string& path, const std::string& how) {
  throw Error(Fault::kInput, Printable(path) + " changed during the run (" + how +
                                 "): nothing was published for it; run again when it is at rest");
}

std::string Difference(const FileStamp& planned, const FileStamp& now) {
  if (planned.size != now.size) {
    return "it had " + std::to_string(planned.size) + " bytes and has " + std::to_string(now.size);
  }
  if (planned.inode != now.inode) return "another file took its place";
  return planned.mtime_ns != now.mtime_ns ? "it was written to" : "its attributes were changed";
}

}  // namespace

void CheckSame(const std::string& path, const FileStamp& planned, const FileStamp& now) {
  if (!(planned == now)) ThrowChanged(path, Difference(planned, now));
}

void CheckUnchanged(const std::string& path, const FileStamp& planned) {
  const std::optional<FileStamp> now = StampOf(path);
  if (!now) ThrowChanged(path, "it is gone");
  CheckSame(path, planned, *now);
}

std::unique_ptr<Reader> OpenUnchanged(const UnitEnv& env, const UnitTask& task) {
  const UnitWork& work = task.work();
  std::unique_ptr<Reader> reader;
  try {
    reader = OpenReader(work.input, env.params(work).raw);
  } catch (const Error& e) {
    if (e.fault() == Fault::kInput) CheckUnchanged(work.input, work.stamp);
    throw;
  }
  CheckSame(work.input, work.stamp, reader->stamp());
  const Header& header = reader->header();
  if (header.shape != work.header.shape || header.channels != work.header.channels ||
      header.dtype != work.header.dtype) {
    throw Error(Fault::kInternal,
                Printable(work.input) + ": its header reads as " + ShapeToString(header.shape, 3) +
                    " x " + std::to_string(header.channels) + " " + DTypeName(header.dtype) +
                    ", and as " + ShapeToString(work.header.shape, 3) + " x " +
                    std::to_string(work.header.channels) + " " + DTypeName(work.header.dtype) +
                    " when it was planned");
  }
  return reader;
}

std::function<void()> RenameGuard(const UnitEnv& env, const UnitTask& task) {
  return [&env, &task] {
    FaultPoint(FaultPlace::kRename);
    CheckWanted(env, task);
    CheckUnchanged(task.work().input, task.work().stamp);
    if (env.lease_is_young && !env.lease_is_young()) {
      throw Error(Fault::kTransient,
                  "the lease of unit " + std::to_string(task.lease.unit) +
                      " may have run out (no renewal was answered in time): its result is dropped");
    }
  };
}

}  // namespace tilery
