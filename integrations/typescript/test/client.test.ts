// Tests of the client against a real controller, which lab/e2e/clients starts. What only the other side can do is asked
// for by a line of JSON on standard output, and answered by one.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { connect as dial, createServer, type AddressInfo, type Socket } from 'node:net'
import { createInterface } from 'node:readline'
import { after, test } from 'node:test'
import { createConfig, lintFromString } from '@redocly/openapi-core'
import { Validator } from '@seriousme/openapi-schema-validator'
import {
  answer, connect, ended, IngotError, OperationFailed, reconcile, requestId, transient, wait, watchMachines,
} from '../src/index.js'

function env(name: string): string {
  const value = process.env[name]
  if (!value) throw new Error(`${name} is not set`)
  return value
}

const url = env('INGOT_URL')
const machine = env('INGOT_MACHINE')
const ingot = connect({ url, token: () => readFileSync(env('INGOT_TOKEN_FILE'), 'utf8').trim() })

const answers = createInterface({ input: process.stdin })
after(() => answers.close())

async function ask(what: string): Promise<void> {
  const answered = new Promise<void>((resolve) => answers.once('line', () => resolve()))
  process.stdout.write(`${JSON.stringify({ ask: what })}\n`)
  await answered
}

async function register(id: string, rack = ''): Promise<void> {
  await answer(ingot.POST('/api/v1/machines', { body: { machine_id: id, spec: { rack, provider: 'fake' } } }))
}

function reboot(id: string, request: string) {
  return answer(ingot.POST('/api/v1/machines/{machine_id}/reboot', {
    params: { path: { machine_id: id } }, body: { request_id: request },
  }))
}

test('the document that is served is valid OpenAPI 3.1', async () => {
  const served = await (await fetch(`${url}/openapi.json`)).json() as Record<string, unknown>
  const validator = new Validator()
  const found = await validator.validate(served)
  assert.ok(found.valid, JSON.stringify(found.errors)?.slice(0, 2000))
  assert.equal(validator.version, '3.1')
  // And it would find something.
  assert.ok(!(await new Validator().validate({ ...served, components: { schemas: { x: { type: 'strin' } } } })).valid)
})

test('a linter finds nothing in the document', async () => {
  const config = await createConfig({ extends: ['recommended'] })
  const source = await (await fetch(`${url}/openapi.json`)).text()
  assert.deepEqual((await lintFromString({ source, config })).map((p) => `${p.ruleId}: ${p.message}`), [])
  // And it would find something.
  assert.notEqual((await lintFromString({ source: source.replaceAll('"4XX"', '"2XX"'), config })).length, 0)
})

test('work happens once, and is waited for over a restart', async () => {
  const id = await requestId('typescript', 'kernel 6.1', 'ä'.repeat(200))
  const first = await reboot(machine, id)
  assert.equal((await reboot(machine, id)).operation_id, first.operation_id)
  const seqs: number[] = []
  const done = await wait(ingot, first.operation_id, {
    signal: AbortSignal.timeout(120_000),
    async changed(event) {
      seqs.push(Number(event.seq))
      if (seqs.length === 1) await ask('restart')
    },
  })
  assert.equal(done.phase, 'SUCCEEDED')
  assert.notEqual(done.evidence['boot_id_before'], done.evidence['boot_id_after'])
  assert.deepEqual(seqs, seqs.map((_, i) => i + 1))
})

test('errors carry reasons', async () => {
  const reimage = answer(ingot.POST('/api/v1/machines/{machine_id}/reimage', {
    params: { path: { machine_id: machine } }, body: { request_id: 'typescript-reimage' },
  }))
  await assert.rejects(reimage, (e) => e instanceof IngotError && e.reason === 'WRONG_PHASE' && !e.transient)
  const bad = answer(ingot.GET('/api/v1/machines', { params: { query: { filter: 'sight=x' } } }))
  await assert.rejects(bad, (e) => e instanceof IngotError && e.reason === 'INVALID_FILTER' && 'filter' in e.violations)
})

test('a canceled operation is an error', async () => {
  await register('typescript-lonely')
  const enter = await answer(ingot.POST('/api/v1/machines/{machine_id}/enter-maintenance', {
    params: { path: { machine_id: 'typescript-lonely' } }, body: { request_id: 'in' },
  }))
  await wait(ingot, enter.operation_id)
  const started = await reboot('typescript-lonely', 'reboot')
  await answer(ingot.POST('/api/v1/operations/{operation_id}/cancel', {
    params: { path: { operation_id: started.operation_id } }, body: {},
  }))
  await assert.rejects(wait(ingot, started.operation_id),
    (e) => e instanceof OperationFailed && ended(e.operation) && e.reason !== '')
})

test('a lost update is refused by the ETag', async () => {
  await register('typescript-etag', 'r1')
  const path = { machine_id: 'typescript-etag' }
  const { response } = await ingot.GET('/api/v1/machines/{machine_id}', { params: { path } })
  const put = (rack: string) => ingot.PUT('/api/v1/machines/{machine_id}', {
    params: { path, header: { 'If-Match': response.headers.get('ETag') ?? '' } }, body: { spec: { rack } },
  })
  await answer(put('r2'))
  const lost = await put('r3')
  assert.equal(lost.response.status, 412)
})

test('a copy misses nothing between runs', async () => {
  let kept: string | undefined
  let walks = 0
  const racks = new Map<string, string>()
  const run = async (): Promise<string[]> => {
    const seen: string[] = []
    await reconcile(ingot, {
      load: () => kept,
      keep: (cursor) => { kept = cursor },
      apply(m) {
        seen.push(m.machine_id)
        if (m.deleted_at) racks.delete(m.machine_id)
        else racks.set(m.machine_id, m.spec?.rack ?? '')
      },
      walked(ids) {
        walks++
        assert.ok(ids.has('typescript-r2'))
      },
    })
    return seen
  }
  await register('typescript-r1', 'r1')
  await register('typescript-r2', 'r1')
  await run()
  assert.equal(racks.get('typescript-r1'), 'r1')
  await register('typescript-r1', 'r2')
  await answer(ingot.DELETE('/api/v1/machines/{machine_id}', { params: { path: { machine_id: 'typescript-r2' } } }))
  assert.ok((await run()).includes('typescript-r2'))
  assert.equal(racks.get('typescript-r1'), 'r2')
  assert.ok(!racks.has('typescript-r2'))
  assert.equal(walks, 1)
})

test('machines are watched', async () => {
  await register('typescript-w1', 'ts-watched')
  const kinds: string[] = []
  for await (const event of watchMachines(ingot, { filter: 'rack=ts-watched', signal: AbortSignal.timeout(60_000) })) {
    kinds.push(`${event.kind} ${event.machine?.machine_id ?? ''}`)
    if (event.kind === 'BOOKMARK' && kinds.length === 2) await register('typescript-w2', 'ts-watched')
    if (event.machine?.machine_id === 'typescript-w2') break
  }
  assert.equal(kinds[0], 'CURRENT typescript-w1')
  assert.equal(kinds.at(-1), 'CHANGED typescript-w2')
})

test('lists are filtered and sorted', async () => {
  for (const name of ['typescript-10', 'typescript-9']) {
    await answer(ingot.PUT('/api/v1/budgets/{name}', {
      params: { path: { name } }, body: { domain: 'fleet', at_once: 1000 },
    }))
  }
  const list = await answer(ingot.GET('/api/v1/budgets', {
    params: { query: { filter: 'name=typescript-*', order_by: 'name desc', page_size: 1 } },
  }))
  assert.deepEqual(list.budgets.map((b) => b.name), ['typescript-10'])
  assert.equal(list.total_size, 2)
})

/** A proxy at an address of this machine, and how often it was called. */
async function proxy(at: string, serve: (client: Socket, nth: number) => void) {
  let calls = 0
  const server = createServer((client) => {
    client.on('error', () => undefined)
    serve(client, ++calls)
  })
  server.listen(0, at)
  await once(server, 'listening')
  after(() => server.close())
  return { url: `https://${at}:${(server.address() as AddressInfo).port}`, calls: () => calls }
}

/** Passes what a client says on to a server, and gives the connection to that. */
function pass(client: Socket, server = url): Socket {
  const { hostname, port } = new URL(server)
  const behind = dial(Number(port), hostname)
  behind.on('error', () => client.destroy())
  client.on('close', () => behind.destroy())
  client.pipe(behind)
  return behind
}

function list(at: string, patience: number) {
  return answer(connect({ url: at, token: readFileSync(env('INGOT_TOKEN_FILE'), 'utf8').trim(), patience })
    .GET('/api/v1/machines'))
}

for (const [how, breakOff] of Object.entries<(client: Socket) => void>({
  'with nothing said': (client) => { client.once('data', () => client.end()) },
  'by a reset': (client) => { client.once('data', () => client.resetAndDestroy()) },
  'amid the server\'s words': (client) => {
    pass(client).once('data', (hello: Buffer) => client.end(hello.subarray(0, hello.length / 2)))
  },
})) {
  test(`a handshake that breaks off ${how} is tried again`, async () => {
    const going = await proxy('127.0.0.1', breakOff)
    await assert.rejects(list(going.url, 0), (e) => transient(e))
    const back = await proxy('127.0.0.1', (client, nth) => { nth < 3 ? breakOff(client) : pass(client).pipe(client) })
    await list(back.url, 60_000)
    assert.ok(back.calls() > 2)
  })
}

test('a certificate that does not verify is not tried again', async () => {
  for (const [what, server] of Object.entries({
    'another root': await proxy('127.0.0.1', (client) => pass(client, `https://${env('INGOT_STRANGER')}`).pipe(client)),
    'another name': await proxy('127.0.0.2', (client) => pass(client).pipe(client)),
    'no TLS': await proxy('127.0.0.1', (client) => client.end('HTTP/1.1 400 Bad Request\r\n\r\n')),
  })) {
    await assert.rejects(list(server.url, 60_000), (e) => e instanceof TypeError && !transient(e), what)
    assert.equal(server.calls(), 1, what)
  }
})
