// How fields are written and read, shared by the files that know the JSON forms.
#pragma once

#include <concepts>
#include <string>
#include <type_traits>

#include "cluster/message.h"
#include "io/box.h"
#include "io/error.h"

namespace tilery {

// Runs `read`; what the JSON library throws becomes an Error that names the value at fault.
template <typename Read>
auto Reading(const char* what, Read read) {
  try {
    return read();
  } catch (const Json::exception& error) {
    throw Error(Fault::kInternal,
                std::string("damaged ") + what + " in a control message: " + error.what());
  }
}

template <typename E>
requires std::is_enum_v<E> E EnumFrom(const Json& json, E last, const char* what) {
  const int64_t value = json.get<int64_t>();
  if (value < 0 || value > static_cast<int64_t>(last)) {
    throw Error(Fault::kInternal,
                std::string("damaged ") + what + " in a control message: " + std::to_string(value) +
                    " is not in 0.." + std::to_string(static_cast<int64_t>(last)));
  }
  return static_cast<E>(value);
}

// A field is written if it differs from its default, and read over the default if it is there.
template <typename T>
void Put(Json& json, const char* name, const T& value, const T& usual) {
  if (!(value == usual)) json[name] = value;
}
template <typename E>
requires std::is_enum_v<E>
void Put(Json& json, const char* name, const E& value, const E& usual) {
  if (value != usual) json[name] = static_cast<int>(value);
}
template <typename T>
void Get(const Json& json, const char* name, T& value) {
  if (const auto found = json.find(name); found != json.end()) found->get_to(value);
}
template <typename E>
void GetEnum(const Json& json, const char* name, E last, E& value) {
  if (const auto found = json.find(name); found != json.end()) value = EnumFrom(*found, last, name);
}

Json ScaleToJson(const Scale& scale);
Scale ScaleFromJson(const Json& json);

}  // namespace tilery
