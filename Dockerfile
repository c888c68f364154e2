# Two stages: one that builds, one that only has the program.
FROM rust:1-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock rust-toolchain.toml ./
COPY src src
# The admin API's description is part of the program.
COPY docs/openapi.json docs/
RUN cargo build --release --locked --bin onceward && mkdir /data

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/release/onceward /usr/local/bin/onceward
# The records live here: mount a volume, or every restart forgets them. The
# configuration names it: `store: { embedded: { path: /data } }`. With
# `store.redis` nothing is kept here.
COPY --from=build --chown=nonroot:nonroot /data /data
VOLUME /data
WORKDIR /data
USER nonroot
EXPOSE 8080 8081
ENTRYPOINT ["/usr/local/bin/onceward"]
CMD ["serve", "--config", "/etc/onceward/onceward.yaml"]
