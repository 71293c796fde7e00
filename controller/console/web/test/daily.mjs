// The jobs of a day, by the mouse: each begins on the first screen, is done for real, and its presses are counted.
import assert from 'node:assert/strict'
import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export async function daily({ page, ask, say, open, accessible, shot, job }) {
  // A part that fails does not hide what the others show.
  const failed = []
  async function part(name, work) {
    try {
      await work()
      say(name)
    } catch (e) {
      failed.push(`${name}: ${e.stack}`)
      await open('')
    }
  }
  const dialog = page.locator('dialog')
  const main = page.locator('main')
  const find = page.getByRole('combobox', { name: 'Find a machine or an operation' })
  const field = (label) => dialog.getByLabel(new RegExp('^\\s*' + label.replace(/[()]/g, '\\$&')))
  const confirm = async (word) => {
    await dialog.getByRole('button', { name: word, exact: true }).click()
    await Promise.race([dialog.waitFor({ state: 'detached' }), dialog.getByRole('alert').waitFor().catch(() => 0)])
    if (await dialog.count()) assert.fail(`${word}: ${await dialog.getByRole('alert').allTextContents()}`)
  }
  const machine = async (id) => JSON.parse(await ask('ingot', 'machine', 'get', id, '-o', 'json'))
  async function until(what, check) {
    for (let i = 0; i < 600; i++) {
      if (await check()) return
      await page.waitForTimeout(300)
    }
    assert.fail(what)
  }
  // search opens a machine by what a person has of it.
  async function search(text, id) {
    await find.fill(text)
    await page.getByRole('option', { name: new RegExp(`^${id}\\b`) }).click()
    await page.waitForURL(new RegExp(`/machines/${id}$`))
    await page.getByRole('heading', { name: id, level: 1 }).waitFor()
  }

  // --- what a person has in hand: a name, a serial number, a MAC address, an id of an operation
  await part('what a person has in hand: a name, a serial number, a MAC address, an id of an operation', async () => {
    await ask('ingot', 'machine', 'register', 'rack-9-u12', '--mac-addresses', '52:54:00:09:12:01', '--serial', 'SN-9412', '--label', 'asset=A-771')
    await open('')
    for (const [text, id] of [['web-12.example.org', 'web-12'], ['sn-9412', 'rack-9-u12'], ['5254.0009.1201', 'rack-9-u12'], ['52-54-00-09', 'rack-9-u12'], ['a-771', 'rack-9-u12']])
      await job(`open a machine by ${text}`, () => search(text, id))
    await find.fill('no-such-thing')
    await page.getByText('No machine has this').waitFor()
    await accessible(page, 'a search that finds nothing')
    await find.fill('web-1')
    await page.getByRole('option').nth(5).waitFor()
    assert.match(await page.getByRole('option').first().textContent(), /^web-1\b/, 'what is called exactly so comes first')
    await accessible(page, 'a search')
    await shot('search')
    await page.keyboard.press('ArrowDown')
    await page.keyboard.press('Enter')
    await page.waitForURL(/\/machines\/web-1\d$/)
    const operation = JSON.parse(await ask('ingot', 'ops', '-o', 'json', '--machine', 'web-1')).operations[0].operation_id
    await page.keyboard.press('Control+k')
    await page.keyboard.type(operation)
    await page.keyboard.press('Enter')
    await page.waitForURL(new RegExp(`/operations/${operation}$`))
  })

  // --- a machine's record: made, changed, removed
  await part("a machine's record: made, changed, removed", async () => {
    await job('register a machine', async () => {
      await page.getByRole('link', { name: 'Machines', exact: true }).click()
      await main.getByRole('button', { name: 'Register…' }).click()
      await field('Name').fill('by-hand')
      await field('Rack').fill('r77')
      await field('MAC addresses').fill('52:54:00:77:00:01, 52:54:00:77:00:02')
      await field('Labels').fill('env=prod, asset=77')
      await confirm('Register…')
    })
    assert.deepEqual((await machine('by-hand')).spec.mac_addresses, ['52:54:00:77:00:01', '52:54:00:77:00:02'])
    await main.getByRole('button', { name: 'Register…' }).click()
    await field('Name').fill('by-hand')
    await dialog.getByRole('button', { name: 'Register…' }).click()
    await dialog.getByRole('alert').filter({ hasText: 'by-hand' }).waitFor()
    await accessible(page, 'a registration that is refused')
    await page.keyboard.press('Escape')
    await job('change a rack and a label', async () => {
      await search('by-hand', 'by-hand')
      await main.getByRole('button', { name: /^Edit…/ }).click()
      await dialog.getByText('nothing is changed').waitFor()
      await field('Rack').fill('r78')
      await field('Labels').fill('env=test')
      await dialog.getByText("--rack r78 --label env=test --label asset-").waitFor()
      await confirm('Edit…')
    })
    const changed = await machine('by-hand')
    assert.deepEqual([changed.spec.rack, changed.labels, changed.spec.mac_addresses.length], ['r78', { env: 'test' }, 2])
    await job('delete a record', async () => {
      await main.getByRole('button', { name: /^Delete the record…/ }).click()
      await field('Type by-hand').fill('by-hands')
      await dialog.getByText('the name is another one').waitFor()
      await accessible(page, 'a deletion')
      await field('Type by-hand').fill('by-hand')
      await confirm('Delete the record…')
    })
    await page.waitForURL(/\/machines$/)
  })

  // --- images
  await part('images', async () => {
    const dir = await mkdtemp(join(tmpdir(), 'console-'))
    const kernel = join(dir, 'vmlinuz')
    const bytes = Buffer.alloc(3 << 20, 'kernel')
    bytes.write('ARMd', 56) // what Linux' arm64 Image begins with, Documentation/arch/arm64/booting.rst
    await writeFile(kernel, bytes)
    await job('upload an image', async () => {
      await page.getByRole('link', { name: 'Images', exact: true }).click()
      await main.getByRole('button', { name: /^Upload…/ }).click()
      await field('File').setInputFiles(kernel)
      await field('Name').fill('rescue-kernel')
      await field('Kind').selectOption('installer-kernel')
      await field('Architecture').selectOption('arm64')
      await page.waitForTimeout(500)
      await accessible(page, 'an upload')
      await shot('upload')
      await confirm('Upload')
    })
    await main.getByRole('cell', { name: 'rescue-kernel', exact: true }).waitFor()
    await main.getByRole('button', { name: /^Upload…/ }).click()
    await field('File').setInputFiles(kernel)
    await field('Name').fill('no-system')
    await field('Kind').selectOption('os')
    await dialog.getByRole('button', { name: 'Upload', exact: true }).click()
    await dialog.getByRole('alert').waitFor()
    await page.keyboard.press('Escape')
    await main.getByRole('button', { name: /^Add from an address…/ }).click()
    await field('Name').fill('elsewhere')
    await field('https').fill('https://127.0.0.1:1/none.raw')
    await dialog.getByRole('button', { name: 'Add from an address…' }).click()
    await dialog.getByRole('alert').waitFor()
    await page.keyboard.press('Escape')
    await job('remove an image', async () => {
      await main.getByRole('button', { name: /^Remove\W*rescue-kernel/ }).click()
      await confirm('Remove')
    })
    await main.getByRole('cell', { name: 'rescue-kernel', exact: true }).waitFor({ state: 'detached' })
  })

  // --- credentials of BMCs
  await part('credentials of BMCs', async () => {
    await job('store credentials of BMCs', async () => {
      await page.getByRole('link', { name: 'More', exact: true }).click()
      await page.getByRole('link', { name: /^BMCs/ }).click()
      await main.getByRole('button', { name: 'New credentials…' }).click()
      await field('Name that').fill('rack-9')
      await field('User name').fill('admin')
      await field('Password').fill('s3cret-of-rack-9')
      await field('BMCs that').fill('10.30.9.0/24')
      assert.equal(await field('Password').getAttribute('type'), 'password')
      await page.waitForTimeout(500) // the button turns from one that is off
      await accessible(page, 'credentials')
      await confirm('New credentials…')
    })
    const row = main.locator('tr', { hasText: 'rack-9' })
    await row.getByRole('button', { name: /^Change…/ }).click()
    await field('BMCs that').fill('10.30.9.0/24, 10.30.10.7')
    await confirm('Change…')
    await row.getByText('10.30.10.7').waitFor()
    assert.ok(!(await page.content()).includes('s3cret-of-rack-9'), 'the password is on no page')
    await row.getByRole('button', { name: /^Delete/ }).click()
    await confirm('Delete')
    await row.waitFor({ state: 'detached' })
  })

  // --- a site
  await part('a site', async () => {
    await job('add a site', async () => {
      await page.getByRole('link', { name: 'Sites', exact: true }).click()
      await main.getByRole('button', { name: /^Add a segment…/ }).click()
      await field('Site').fill('paris')
      await field('Network device').fill('eth1')
      await field('Its address').fill('10.88.0.1/24')
      await field('First address').fill('10.88.0.100')
      await field('Last address').fill('10.88.0.199')
      await dialog.getByText('ingot site add paris --segment eth1 --address 10.88.0.1/24 --pool 10.88.0.100-10.88.0.199').waitFor()
      await confirm('Add a segment…')
    })
    await page.getByRole('link', { name: 'paris' }).waitFor()
    await accessible(page, 'sites')
  })

  // --- one machine: out of service, repair, power, light
  await part('one machine: out of service, repair, power, light', async () => {
    await job('send a machine for repair', async () => {
      await search('web-15', 'web-15')
      await main.getByRole('button', { name: 'Enter maintenance', exact: true }).click()
      await confirm('Enter maintenance')
      await until('it is in maintenance', async () => (await machine('web-15')).status.phase === 'MAINTENANCE' && !(await machine('web-15')).status.active_operation_id)
      await main.getByRole('button', { name: /^Send for repair$/ }).click()
      await confirm('Send for repair')
    })
    await main.getByRole('button', { name: 'Back from repair' }).first().click()
    await confirm('Back from repair')
    await until('it is back', async () => !(await machine('web-15')).status.conditions.some((c) => c.type === 'RMA' && c.status))
    for (const [word, why] of [['Identify…', 'no BMC is known for it'], ['Switch off', '']]) {
      await main.getByRole('button', { name: new RegExp(`^${word}`) }).first().click()
      await dialog.getByText(why ? `Refused: ${why}` : 'ingot power off web-15').first().waitFor()
      await accessible(page, word)
      await page.keyboard.press('Escape')
    }
    await main.getByRole('button', { name: 'Decommission' }).first().click()
    await field('Mode').selectOption('full-decommission')
    await dialog.getByText('Refused: all its disks are erased: type its name').waitFor()
    await page.keyboard.press('Escape')
  })

  // --- a system is installed: one dialog asks all
  await part('a system is installed: one dialog asks all', async () => {
    await job('provision a machine', async () => {
      await search('web-14', 'web-14')
      await main.getByRole('button', { name: 'Provision…' }).click()
      await field('Image').fill('ubuntu-2204')
      await field('Public SSH keys').fill('ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOeRMCZ2Kd1HpYBkvGEp0Rfv4cYlJ0xNEJWzR0mwKvF7 ann@laptop')
      await field('User-data').fill('#cloud-config\nhostname: web-14\n')
      await dialog.getByRole('button', { name: 'Preview', exact: true }).click()
      await dialog.getByText('1 machine would be worked on').waitFor()
      await dialog.getByText('Data on these machines is lost.').waitFor()
      await accessible(page, 'a provisioning')
      await shot('provision')
      await dialog.getByRole('button', { name: 'Begin on 1 machine' }).click()
      await page.waitForURL(/\/rollouts\/ro-/)
    })
    const rollout = new URL(page.url()).pathname.split('/').pop()
    const state = async () => JSON.parse(await ask('ingot', 'rollout', 'get', rollout, '-o', 'json')).state
    await until('the rollout ends', async () => !/RUNNING|PENDING/.test(await state()))
    assert.equal(await state(), 'SUCCEEDED', await ask('ingot', 'rollout', 'machines', rollout))
    assert.equal((await machine('web-14')).status.phase, 'READY')
    // What the machine would refuse is said before anything happens.
    await search('web-16', 'web-16')
    await main.getByRole('button', { name: 'Provision…' }).click()
    await field('Image').fill('ubuntu-2204')
    await field('User-data').fill('hostname: no header')
    await dialog.getByRole('button', { name: 'Preview', exact: true }).click()
    await dialog.getByRole('alert').waitFor()
    await page.keyboard.press('Escape')

    await job('reboot a rack', async () => {
      await open('machines?filter=' + encodeURIComponent('rack=r101'))
      await page.getByRole('link', { name: 'node-0040', exact: true }).waitFor()
      await page.getByLabel('Select all that are loaded').click()
      await main.getByRole('button', { name: 'Work on them…' }).click()
      await field('What').selectOption('reboot')
      await dialog.getByRole('button', { name: 'Preview', exact: true }).click()
      await dialog.getByText('40 machines would be worked on').waitFor()
      await dialog.getByRole('button', { name: 'Begin on 40 machines' }).click()
      await page.waitForURL(/\/rollouts\/ro-/)
    })
    await page.getByText('To follow it').waitFor()
  })

  // --- what has changed since then, and who did it
  await part('what has changed since then, and who did it', async () => {
    await job('what changed in the last hour', async () => {
      await page.getByRole('link', { name: 'Changes', exact: true }).click()
      await page.getByLabel('Last').selectOption({ label: 'hour' })
      await page.getByRole('table', { name: 'Operations by kind and outcome' }).getByText('Reboot').first().waitFor()
      await page.getByRole('table', { name: 'Calls by person and verb' }).getByText('tester').first().waitFor()
    })
    await page.getByRole('slider', { name: 'Until' }).press('Home')
    await page.getByText('nothing is between them').waitFor()
    await accessible(page, 'changes')
    await shot('changes')
    await job('failed operations of the last day', async () => {
      await page.getByRole('link', { name: 'Operations', exact: true }).click()
      await main.getByRole('button', { name: 'Failed', exact: true }).click()
      await main.getByRole('button', { name: 'Last day', exact: true }).click()
      await page.waitForFunction(() => /phase%3DFAILED.*created_after/.test(location.search))
      await page.waitForFunction(() => [...document.querySelectorAll('td .phase')].every((e) => e.textContent?.includes('Failed')))
    })
    await main.getByRole('button', { name: 'Failed', exact: true }).click()
    await page.waitForFunction(() => !/FAILED/.test(location.search))
    await page.getByRole('link', { name: 'Audit', exact: true }).click()
    await main.getByRole('button', { name: 'Last hour', exact: true }).click()
    await main.locator('td[title=REGISTER_MACHINE], td[title=REGISTER]').first().waitFor()
    await accessible(page, 'audit')
    await shot('audit')
  })

  // --- a history in lines that are read: one an operation
  await part('a history in lines that are read: one an operation', async () => {
    await search('web-14', 'web-14')
    const fold = main.locator('section', { has: page.getByRole('heading', { name: 'History' }) }).getByRole('button', { name: 'Reimage' }).first()
    await fold.waitFor()
    assert.equal(await fold.getAttribute('aria-expanded'), 'false')
    const before = await page.locator('tr.of').count()
    await fold.click()
    await page.locator('tr.of').nth(before + 2).waitFor()
    await accessible(page, 'a history')
  })

  assert.deepEqual(failed, [])
}
