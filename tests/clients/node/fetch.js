'use strict';

const { run, step } = require('./scenarios.js');

const pay = (url, key, amount, more) =>
  fetch(`${url}/pay`, {
    method: 'POST',
    headers: { Authorization: 'Bearer alice', 'Content-Type': 'application/json', 'Idempotency-Key': key },
    body: JSON.stringify({ amount }),
    ...more,
  });

const heard = async (answer) => ({
  status: answer.status,
  outcome: answer.headers.get('onceward-outcome'),
  replayed: answer.headers.get('idempotent-replayed'),
  body: await answer.text(),
});

run({
  // All keys twice at once, over and over on the connections that are kept.
  async crowd({ url, keys, rounds }) {
    const answers = [];
    for (let round = 0; round < rounds; round += 1) {
      const all = Array.from({ length: keys }, (_, n) => `k-${n}`);
      const asked = [...all, ...all].map(async (key) => ({ key, ...(await heard(await pay(url, key, 5))) }));
      answers.push(...(await Promise.all(asked)));
    }
    return answers;
  },

  // Leaves in mid-flight when the test says so by answering `gate`, and asks
  // again.
  async abort({ url, gate }) {
    const leaving = new AbortController();
    const first = pay(url, 'k', 5, { signal: leaving.signal }).catch((error) => error.name);
    await fetch(gate);
    leaving.abort();
    const left = await first;
    step({ left });
    return { left, retry: await heard(await pay(url, 'k', 5)) };
  },

  // Reads an answer as it comes.
  async stream({ url }) {
    const answer = await pay(url, 'k', 5);
    const text = new TextDecoder();
    let body = '';
    for await (const bytes of answer.body) {
      const chunk = text.decode(bytes, { stream: true });
      body += chunk;
      step(chunk);
    }
    return { status: answer.status, body };
  },

  // Sends a body as it is made, of which fetch knows no length.
  async upload({ url, chunks, size }) {
    async function* body() {
      for (let n = 0; n < chunks; n += 1) yield new Uint8Array(size).fill(n);
    }
    const headers = { Authorization: 'Bearer alice', 'Idempotency-Key': 'k' };
    const answer = await fetch(url, { method: 'POST', headers, body: body(), duplex: 'half' });
    return heard(answer);
  },

  // Reads an answer that breaks off, and asks again.
  async broken({ url }) {
    const reader = (await pay(url, 'k', 5)).body.getReader();
    const text = new TextDecoder();
    let end = 'clean';
    try {
      for (let read = await reader.read(); !read.done; read = await reader.read()) step(text.decode(read.value));
    } catch (error) {
      end = error.message;
    }
    return { end, retry: await heard(await pay(url, 'k', 5)) };
  },
});
