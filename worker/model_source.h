// Where a worker gets its model's bytes from: the file, or another worker that passes it on. Its
// part of the control protocol (`model`, `model_id`).
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "cluster/broadcast.h"
#include "cluster/message.h"
#include "scheduler/wire.h"
#include "worker/passed_model.h"

namespace tilery {

// Thread-safe, but for Get and Loaded, which are for one thread.
class ModelSource {
 public:
  using Send = std::function<void(Json message)>;
  // `broadcaster`: makes one where there is one; may be empty. `worker`: for messages.
  ModelSource(Send send, const std::function<std::unique_ptr<Broadcaster>()>& broadcaster,
              const std::string& worker)
      : send_(std::move(send)), broadcaster_(broadcaster), worker_(worker) {}

  // Before the model is loaded. If another worker passes the file on, context.model_at says where
  // its bytes are; if it does not work, that is said on standard error and the file is read.
  void Get(WorkerContext& context);
  // After that: what is held of it is given back.
  void Loaded();

  void Answer(const Json& message);  // the scheduler's
  void GiveUp();                     // there will be none

  // Of the profile: {from: "file" | "broadcast", bytes}, with a broadcast {members, broadcast_s},
  // or {not_passed_on: reason}; null before Get.
  Json words() const;

 private:
  std::unique_ptr<Broadcaster> Make();
  BroadcastSeat Seat(Broadcaster& broadcaster);

  const Send send_;
  const std::function<std::unique_ptr<Broadcaster>()>& broadcaster_;
  const std::string& worker_;
  std::optional<PassedModel> passed_;

  mutable std::mutex mutex_;  // guards the three below
  std::condition_variable changed_;
  std::optional<Json> answer_;
  bool hopeless_ = false;
  Json words_;
};

}  // namespace tilery
