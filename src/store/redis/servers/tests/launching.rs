//! What the other tests stand on.

use crate::store::redis::servers::launcher::{RedisCluster, RedisPair, RedisServer, Reply};

#[test]
fn a_server_starts_freezes_dies_and_starts_again() {
    let mut server = RedisServer::start();
    assert_eq!(server.command(&["SET", "a", "1"]), Reply::Text("OK".into()));
    server.pause();
    assert!(server.try_command(&["PING"]).is_err());
    server.resume();
    assert_eq!(server.command(&["GET", "a"]), Reply::Text("1".into()));
    let (port, run) = (server.port(), server.info("run_id"));
    server.kill();
    assert!(server.try_command(&["PING"]).is_err());
    server.start_again();
    assert_eq!(server.port(), port);
    assert_ne!(server.info("run_id"), run);
    assert_eq!(server.command(&["GET", "a"]), Reply::Nil);
}

#[test]
fn a_cluster_holds_all_slots_and_fails_over() {
    let mut cluster = RedisCluster::start();
    assert!(
        matches!(cluster.nodes()[0].command(&["SET", "foo", "1"]), Reply::Error(moved) if moved.starts_with("MOVED 12182"))
    );
    assert_eq!(cluster.nodes()[2].command(&["SET", "foo", "1"]), Reply::Text("OK".into()));
    let replica = cluster.add_replica(2);
    cluster.failover(replica);
    assert_eq!(cluster.nodes()[replica].command(&["GET", "foo"]), Reply::Text("1".into()));
}

#[test]
fn sentinels_make_a_replica_the_master() {
    let mut pair = RedisPair::start();
    let before = pair.master_port();
    assert_eq!(before, pair.servers()[0].port());
    pair.server_mut(0).kill();
    pair.wait_for_another_master(before);
    assert_eq!(pair.master_port(), pair.servers()[1].port());
}
