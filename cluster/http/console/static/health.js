// Health summary of the cluster: one sentence for each problem, the most severe first. Pure functions.

import { plural } from "./format.js";

/** Return {isWell, sentences}; `cluster` is the response of /v1/cluster. */
export function healthOf(cluster) {
  const fenced = cluster.brokers.filter((broker) => broker.is_fenced).map((broker) => broker.broker_id);
  const troubles = [
    cluster.controller === null && "There is no controller: no topic can be created, no leader elected and no config changed.",
    fenced.length > 0 && `${names(fenced)} out of service.`,
    cluster.offline_partitions > 0 &&
      `${plural(cluster.offline_partitions, "partition")} without a leader: they cannot be read or written.`,
    cluster.under_min_isr_partitions > 0 &&
      `${plural(cluster.under_min_isr_partitions, "partition")} below min.insync.replicas: acks=all is refused.`,
    cluster.under_replicated_partitions > 0 &&
      `${plural(cluster.under_replicated_partitions, "partition")} under-replicated.`,
  ].filter(Boolean);
  if (troubles.length > 0) return { isWell: false, sentences: troubles };
  return {
    isWell: true,
    sentences: [
      `Healthy: ${plural(cluster.brokers.length, "broker")}, ${plural(cluster.partition_count, "partition")} in sync.`,
    ],
  };
}

function names(brokers) {
  return brokers.length === 1
    ? `Broker ${brokers[0]} is`
    : `Brokers ${brokers.slice(0, -1).join(", ")} and ${brokers.at(-1)} are`;
}

/** Return a broker's state as a short label and a mark that does not depend on colour. */
export function stateOf(broker) {
  if (broker.is_fenced) return { isWell: false, word: "out of service", mark: "✕" };
  if (broker.is_shutting_down) return { isWell: false, word: "shutting down", mark: "◐" };
  return { isWell: true, word: "in service", mark: "●" };
}
