#include "cluster/message.h"

#include <sys/random.h>

#include <array>
#include <cerrno>

#include "cluster/frame.h"
#include "io/error.h"

namespace tilery {
namespace {

// Map keys of MessagePack may be any value; the parser takes strings only and says so by an
// exception.
Json Parse(const std::string& body) {
  try {
    return Json::from_msgpack(body);
  } catch (const Json::exception& error) {
    throw Error(Fault::kInternal, std::string("damaged control message: ") + error.what());
  }
}

}  // namespace

std::string EncodeFrame(const Json& message) {
  std::string frame(4, '\0');
  Json::to_msgpack(message, nlohmann::detail::output_adapter<char>(frame));
  const size_t length = frame.size() - 4;
  if (length > kMaxFrame) {
    throw Error(Fault::kInternal, "a control message of " + std::to_string(length) +
                                      " bytes is longer than the " + std::to_string(kMaxFrame) +
                                      " allowed");
  }
  for (int i = 0; i < 4; ++i) frame[i] = static_cast<char>(length >> (8 * i) & 0xff);
  return frame;
}

Json DecodeBody(const std::string& body) {
  CheckMessagePack(body);
  Json message = Parse(body);
  const auto type = message.is_object() ? message.find("type") : message.end();
  if (!message.is_object() || type == message.end() || !type->is_string()) {
    throw Error(Fault::kInternal, "damaged control message: no object with a \"type\"");
  }
  return message;
}

std::string NewToken() {
  std::array<unsigned char, 32> random{};
  size_t have = 0;
  while (have < random.size()) {
    const ssize_t got = getrandom(random.data() + have, random.size() - have, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw Error(Fault::kInternal, Errno("read random bytes from the system", errno));
    have += static_cast<size_t>(got);
  }
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string token;
  for (unsigned char byte : random) {
    token += kDigits[byte >> 4];
    token += kDigits[byte & 0x0f];
  }
  return token;
}

bool SameToken(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char differs = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    differs = differs | static_cast<unsigned char>(a[i] ^ b[i]);
  }
  return differs == 0;
}

}  // namespace tilery
