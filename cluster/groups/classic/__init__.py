"""Groups with the classic protocol (JoinGroup and SyncGroup): the members' leader assigns the partitions."""
