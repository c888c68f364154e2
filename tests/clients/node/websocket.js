'use strict';

const WebSocket = require('ws');
const { once } = require('node:events');
const { run, step } = require('./scenarios.js');

// A destination that echoes, and closes or breaks off when told to. It counts
// connections and messages.
const destination = async (port) => {
  const counted = { connections: 0, messages: 0, closes: [] };
  const handleProtocols = (offered) => (offered.has('chat.v2') ? 'chat.v2' : false);
  const verifyClient = ({ req }, decide) => decide(req.url !== '/forbidden', 401, 'Who are you?', { 'X-Why': 'no' });
  const perMessageDeflate = { threshold: 1024 };
  const options = { host: '127.0.0.1', port, handleProtocols, verifyClient, perMessageDeflate, maxPayload: 1 << 26 };
  const server = new WebSocket.Server(options);
  await once(server, 'listening');
  server.on('connection', (socket, request) => {
    counted.connections += 1;
    counted.forwardedFor = request.headers['x-forwarded-for'];
    socket.on('message', (data, isBinary) => {
      counted.messages += 1;
      if (!isBinary && data.toString() === 'close') socket.close(4002, 'as you wish');
      else if (!isBinary && data.toString() === 'break') socket.terminate();
      else socket.send(data, { binary: isBinary });
    });
    socket.on('close', (code, reason) => counted.closes.push([code, reason.toString()]));
  });
  return { server, counted };
};

const opened = async (url, ...more) => {
  const socket = new WebSocket(url, ...more);
  await once(socket, 'open');
  return socket;
};

const closed = async (socket) => {
  const [code, reason] = await once(socket, 'close');
  return [code, reason.toString()];
};

const echo = async (socket, data) => {
  const back = once(socket, 'message');
  socket.send(data);
  const [echoed] = await back;
  return echoed;
};

run({
  async all({ url, port }) {
    const { server, counted } = await destination(port);

    const socket = await opened(`${url}/chat?room=1`, ['chat.v1', 'chat.v2']);
    const protocol = socket.protocol;
    const deflate = socket.extensions.includes('permessage-deflate');
    const text = (await echo(socket, 'hello')).toString();
    const big = Buffer.alloc(5_000_000, 'onceward ');
    for (let at = 0; at < big.length; at += 997) big[at] = (at * 7) % 256;
    const binary = (await echo(socket, big)).equals(big);
    const pong = once(socket, 'pong');
    socket.ping('alive?');
    const ponged = (await pong)[0].toString();
    socket.close(4001, 'had enough');
    const byClient = await closed(socket);

    const other = await opened(`${url}/chat`, { perMessageDeflate: false });
    const plain = (await echo(other, big)).equals(big);
    other.send('close');
    const byServer = await closed(other);

    const broken = await opened(`${url}/chat`);
    broken.send('break');
    const brokenOff = await closed(broken);

    const refused = new WebSocket(`${url}/forbidden`);
    refused.on('error', () => {});
    const [, answer] = await once(refused, 'unexpected-response');
    const rejected = [answer.statusCode, answer.headers['x-why']];
    answer.destroy();

    // One that leaves without a word is known to be gone.
    const leaving = await opened(`${url}/chat`);
    await echo(leaving, 'hello');
    leaving.terminate();
    while (counted.closes.length < 4) await new Promise((again) => setTimeout(again, 5));

    server.close();
    return { protocol, deflate, text, binary, ponged, byClient, plain, byServer, brokenOff, rejected, counted };
  },

  // Many at once, each with messages of its own.
  async crowd({ url, port, sockets, messages }) {
    const { server, counted } = await destination(port);
    const talk = async (_, n) => {
      const socket = await opened(`${url}/chat`);
      let right = 0;
      for (let at = 0; at < messages; at += 1) right += (await echo(socket, `${n}-${at}`)).toString() === `${n}-${at}`;
      socket.close(1000);
      await closed(socket);
      return right;
    };
    const right = await Promise.all(Array.from({ length: sockets }, talk));
    server.close();
    return { right: right.reduce((sum, one) => sum + one, 0), counted };
  },

  // Stays open while the test does something to the proxy.
  async stays({ url, port }) {
    const { server } = await destination(port);
    const socket = await opened(`${url}/chat`);
    await echo(socket, 'hello');
    const end = closed(socket);
    step('open');
    const result = await end;
    server.close();
    return result;
  },
});
