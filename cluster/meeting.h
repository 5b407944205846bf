// Where the workers of a run meet its scheduler: addresses, port and token, and the file that says
// so to those who come later.
//
// Source: getifaddrs(3). Thread-safe (no state). The token is a secret: it stands in files of mode
// 0600, in the environment or in a pipe, never in argv or a log.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cluster/client.h"

namespace tilery {

struct Meeting {
  std::vector<std::string> addresses;  // numeric, the likeliest first
  uint16_t port = 0;
  std::string token;
  int64_t epoch = 0;  // of the run
};

// Numeric addresses of this host that others may reach: all of its interfaces that are up, without
// loopback and link-local ones; IPv4 first. `wanted` chooses: "" or "auto" all, else the name of an
// interface or an address of this host. Error(kUsage) naming what there is if nothing fits.
std::vector<std::string> AddressesOfHost(const std::string& wanted);

// Numeric addresses of a host by its name (or number). Error(kUsage) naming host and reason.
std::vector<std::string> AddressesOfName(const std::string& host);

// The first of the addresses at which this run's scheduler answers, all being tried at the same
// time; nullopt if none does within `seconds`. One that has the same number on another network and
// belongs to something else does not answer as it should.
std::optional<Endpoint> FindScheduler(const Meeting& meeting, double seconds);

// WORK/join.json, mode 0600. Reading: nullopt if there is none; Error(kUsage) if it can't be read
// or understood, or if others may read it.
std::filesystem::path MeetingFile(const std::filesystem::path& work);
void WriteMeeting(const std::filesystem::path& work, const Meeting& meeting);
std::optional<Meeting> ReadMeeting(const std::filesystem::path& work);

Json ToJson(const Meeting& meeting);
Meeting MeetingFromJson(const Json& json);  // Json::exception if something lacks

std::string HostName();  // of this host, as others show it

}  // namespace tilery
